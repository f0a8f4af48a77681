"""Which error of an exception group decides the outcome of an attempt."""

import pytest

from delayq.core.control_flow import (
    Discard,
    Fail,
    JobCancelled,
    JobTimedOut,
    Retry,
    Snooze,
    WorkerShutdown,
    leading_error,
)
from delayq.core.envelope import Envelope
from delayq.core.outcome import Done, GiveUp, Outcome, Policy, RunAgain, decide

ENVELOPE = Envelope(v=1, id="one", name="n", queue="q", data=b"{}", attempts=0, created_ms=0)  # type: ignore[arg-type]


def group(*errors: BaseException) -> BaseException:
    """Put errors into a group, the last one into a group of its own inside."""
    return BaseExceptionGroup("outer", [*errors[:-1], BaseExceptionGroup("inner", [errors[-1]])])


def outcome_of(error: BaseException) -> Outcome:
    return decide(ENVELOPE, Policy(tries=5), error, now_ms=lambda: 0, rand=lambda: 0.0)


ERROR = ValueError("other")
FAIL = Fail("why")
LONG = Retry("2h")


@pytest.mark.parametrize(
    ("errors", "leads"),
    [
        ((Snooze("1h"), JobTimedOut("late"), Fail("no")), JobTimedOut),
        ((Retry("1h"), FAIL, ERROR), Fail),
        ((Discard(), Retry("1h"), Snooze("1h")), Discard),
        ((Snooze("9h"), Retry("1m"), LONG), Retry),
        ((Snooze("1m"), Snooze("1h")), Snooze),
    ],
)
def test_the_kinds_of_errors_have_an_order(errors: tuple[BaseException, ...], leads: type[BaseException]) -> None:
    for turned in (errors, errors[::-1]):
        assert isinstance(leading_error(group(*turned)), leads)


def test_other_errors_lead_as_the_whole_group() -> None:
    whole = group(Discard(), ERROR, Retry("1h"))
    assert leading_error(whole) is whole
    assert leading_error(ERROR) is ERROR


def test_the_longest_retry_and_snooze_lead() -> None:
    assert leading_error(group(Retry("1m"), LONG, Retry())) is LONG
    found = leading_error(group(Snooze("1m"), Snooze("3h"), Snooze("1h")))
    assert isinstance(found, Snooze)
    assert found.delay_ms == 3 * 3_600_000


def test_a_signal_in_a_group_decides_the_outcome() -> None:
    assert outcome_of(group(Snooze("1h"))) == RunAgain(3_600_000, 0, 0)
    assert outcome_of(group(Discard(), Snooze("1h"))) == Done(discarded="the handler discarded the job")
    assert outcome_of(group(JobCancelled("x"), ERROR)) == Done(is_stopped=True)
    assert outcome_of(group(WorkerShutdown("x"), ERROR)) == RunAgain(0, 0, 0)
    assert outcome_of(group(ERROR, FAIL)) == GiveUp(1, 1, FAIL)
    again = outcome_of(group(ERROR, Snooze("1h")))
    assert isinstance(again, RunAgain)
    assert again.attempts == 1
