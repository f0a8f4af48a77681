"""What becomes of an attempt: a table of errors and policies."""

from dataclasses import replace

import msgspec
import pytest

from delayq.core.backoff import Fixed, parse_backoff
from delayq.core.control_flow import (
    Discard,
    Fail,
    JobCancelled,
    JobTimedOut,
    LimitReached,
    Retry,
    Snooze,
    WorkerShutdown,
)
from delayq.core.envelope import REFUSED, UNKNOWN_SINCE, Envelope, Refusals
from delayq.core.errors import DeadlinePassed, RetryUntilPassed, TriesExhausted, UnknownJob
from delayq.core.outcome import Done, GiveUp, Outcome, Policy, RunAgain, before_start, decide, policy_of

NOW = 1_800_000_000_000
DAY = 86_400_000
BACKOFF = Fixed(7_000)
CRASH = ValueError("why")
CAUSE = KeyError("cause")


def envelope(*, attempts: int = 0, exceptions: int = 0, unknown_since: str | None = None, **members: int) -> Envelope:
    headers = None if unknown_since is None else {UNKNOWN_SINCE: unknown_since}
    return Envelope(
        v=1,
        id="a",
        name="n",
        queue="q",
        data=msgspec.Raw(b"null"),
        attempts=attempts,
        created_ms=0,
        exceptions=exceptions,
        headers=headers,
        **members,  # type: ignore[arg-type]
    )


def outcome_of(error: BaseException | None, policy: Policy, job: Envelope, rand: float = 0.0) -> Outcome:
    return decide(job, policy, error, now_ms=lambda: NOW, rand=lambda: rand)


def again(delay_ms: int, attempts: int, exceptions: int) -> str:
    return f"again after {delay_ms} with {attempts} attempts, {exceptions} exceptions"


def failed(attempts: int, exceptions: int) -> str:
    return f"failed with {attempts} attempts, {exceptions} exceptions"


def in_words(outcome: Outcome) -> str:
    if isinstance(outcome, RunAgain):
        return again(outcome.delay_ms, outcome.attempts, outcome.exceptions)
    if isinstance(outcome, GiveUp):
        return failed(outcome.attempts, outcome.exceptions)
    return f"done, kept for {outcome.retention_ms}" + (", stopped" if outcome.is_stopped else "")


# The job has made 2 attempts with 1 exception before this one; each row changes the default policy by its members.
TABLE = [
    (None, {}, "done, kept for 0"),
    (None, {"retention_ms": 5}, "done, kept for 5"),
    (JobCancelled(), {"retention_ms": 5}, "done, kept for 0, stopped"),
    (Discard(), {"retention_ms": 5}, "done, kept for 0"),
    (WorkerShutdown(), {"tries": 1}, again(0, 2, 1)),
    (Snooze("5m"), {"tries": 1}, again(300_000, 2, 1)),
    (Retry("5m"), {}, again(300_000, 3, 1)),
    (Retry("0s"), {}, again(0, 3, 1)),
    (Retry(), {}, again(7_000, 3, 1)),
    (Retry("5m"), {"tries": 3}, failed(3, 1)),
    (Retry(), {"max_exceptions": 2}, again(7_000, 3, 1)),
    (Fail("no"), {}, failed(3, 2)),
    (CRASH, {}, again(7_000, 3, 2)),
    (CRASH, {"tries": 4}, again(7_000, 3, 2)),
    (CRASH, {"tries": 3}, failed(3, 2)),
    (CRASH, {"tries": 0}, again(7_000, 3, 2)),
    (CRASH, {"max_exceptions": 3}, again(7_000, 3, 2)),
    (CRASH, {"max_exceptions": 2}, failed(3, 2)),
    (CRASH, {"tries": 1, "retry_until_ms": NOW + 1}, again(7_000, 3, 2)),
    (CRASH, {"tries": 0, "retry_until_ms": NOW}, failed(3, 2)),
    (CRASH, {"retry_until_ms": NOW + 1, "max_exceptions": 2}, failed(3, 2)),
    (CRASH, {"deadline_ms": NOW}, again(7_000, 3, 2)),
    (JobTimedOut(), {}, again(7_000, 3, 2)),
    (JobTimedOut(), {"on_timeout": "fail"}, failed(3, 2)),
    (JobTimedOut(), {"deadline_ms": NOW}, failed(3, 2)),
    (JobTimedOut(), {"deadline_ms": NOW + 1}, again(7_000, 3, 2)),
    (SystemExit(1), {}, again(7_000, 3, 2)),
]


@pytest.mark.parametrize(("error", "members", "expected"), TABLE)
def test_the_outcome_of_an_attempt(error: BaseException | None, members: dict[str, object], expected: str) -> None:
    policy = Policy(**{"backoff": BACKOFF, **members})  # type: ignore[arg-type]
    outcome = outcome_of(error, policy, envelope(attempts=2, exceptions=1))
    assert in_words(outcome) == expected


def test_fail_leaves_the_error_that_it_was_given() -> None:
    outcome = outcome_of(Fail(CAUSE), Policy(), envelope())
    assert isinstance(outcome, GiveUp)
    assert outcome.error is CAUSE
    plain = Fail("too late")
    assert outcome_of(plain, Policy(), envelope()) == GiveUp(1, 1, plain)


def test_a_snooze_leaves_no_error_behind_and_a_crash_does() -> None:
    snoozed, crashed = outcome_of(Snooze("1s"), Policy(), envelope()), outcome_of(CRASH, Policy(), envelope())
    assert isinstance(snoozed, RunAgain) and isinstance(crashed, RunAgain)
    assert (snoozed.error, crashed.error) == (None, CRASH)


def test_a_backoff_function_that_fails_leaves_the_default_and_a_note() -> None:
    error = ValueError("why")
    outcome = outcome_of(error, Policy(backoff=parse_backoff(lambda attempt, error: 1 / 0)), envelope())  # type: ignore[arg-type,return-value]
    assert in_words(outcome) == again(5_000, 1, 1)
    assert "ZeroDivisionError" in error.__notes__[0]


@pytest.mark.parametrize(
    ("age_ms", "delay_ms"),
    [(0, 2_000), (4_000, 2_000), (60_000, 30_000), (1_200_000, 600_000), (6 * DAY, 600_000)],
)
def test_an_unknown_job_waits_half_its_age_and_costs_nothing(age_ms: int, delay_ms: int) -> None:
    job = envelope(attempts=4, exceptions=4, unknown_since=str(NOW - age_ms))
    for rand, factor in ((0.0, 1.0), (0.999_999_9, 1.2)):
        outcome = outcome_of(UnknownJob("n"), Policy(tries=5), job, rand)
        assert in_words(outcome) == again(round(delay_ms * factor), 4, 4)
        assert isinstance(outcome, RunAgain)
        assert outcome.unknown_since_ms == NOW - age_ms


@pytest.mark.parametrize("seen", [None, "", "soon", "-5", "1" * 17, "\u0663", str(NOW + DAY)])
def test_an_unknown_job_is_met_for_the_first_time_without_a_usable_header(seen: str | None) -> None:
    outcome = outcome_of(UnknownJob("n"), Policy(), envelope(unknown_since=seen))
    assert isinstance(outcome, RunAgain)
    assert (outcome.delay_ms, outcome.unknown_since_ms) == (2_000, NOW)


def test_an_unknown_job_fails_after_seven_days_or_at_its_limits() -> None:
    old = envelope(attempts=4, unknown_since=str(NOW - 7 * DAY))
    assert in_words(outcome_of(UnknownJob("n"), Policy(), old)) == failed(4, 0)
    young = envelope(unknown_since=str(NOW - 7 * DAY + 1))
    assert isinstance(outcome_of(UnknownJob("n"), Policy(), young), RunAgain)
    for policy in (Policy(deadline_ms=NOW), Policy(retry_until_ms=NOW)):
        assert in_words(outcome_of(UnknownJob("n"), policy, envelope())) == failed(0, 0)


@pytest.mark.parametrize(
    ("attempts", "policy", "error"),
    [
        (4, Policy(tries=5), None),
        (5, Policy(tries=5), TriesExhausted),
        (999, Policy(tries=0), None),
        (999, Policy(tries=5, retry_until_ms=NOW), None),
        (0, Policy(retry_until_ms=NOW - 1), RetryUntilPassed),
        (0, Policy(deadline_ms=NOW), None),
        (0, Policy(deadline_ms=NOW - 1), DeadlinePassed),
        (9, Policy(tries=5, deadline_ms=NOW - 1), DeadlinePassed),
    ],
)
def test_an_attempt_starts_only_within_its_limits(attempts: int, policy: Policy, error: type[Exception] | None) -> None:
    refused = before_start(envelope(attempts=attempts), policy, lambda: NOW)
    assert (type(refused.error) if refused else None) is error
    assert refused is None or (refused.attempts, refused.exceptions) == (attempts, 0)


def test_the_envelope_goes_before_the_handler() -> None:
    declared = Policy(tries=3, backoff=BACKOFF, retention_ms=9, timeout_ms=60_000, on_timeout="fail")
    assert policy_of(envelope(attempts=2), declared) is declared
    said = policy_of(envelope(tries=0, retention_ms=0, timeout_ms=0, backoff=5, deadline_ms=NOW), declared)
    assert said == Policy(0, Fixed(5), None, NOW, None, 0, 0, "fail")
    assert policy_of(envelope(max_exceptions=2), declared) == replace(declared, max_exceptions=2)


def test_done_without_retention_is_one_object() -> None:
    assert outcome_of(None, Policy(), envelope()) == Done()


@pytest.mark.parametrize(
    ("header", "rand", "count", "delay_ms"),
    [
        (None, 0.0, 1, 1_000),
        (None, 0.5, 1, 2_000),
        (None, 1.0, 1, 3_000),
        ("1 other", 0.0, 2, 1_500),
        ("1 mail", 1.0, 2, 4_500),
        ("3 mail", 0.0, 4, 3_375),
        ("7 mail", 0.0, 8, 15_000),
        ("99999 mail", 1.0, 100_000, 15_000),
        ("many mail", 0.0, 1, 1_000),
        ("9999999999 mail", 0.0, 1, 1_000),
        ("", 0.0, 1, 1_000),
    ],
)
def test_a_refused_job_waits_longer_each_time(header: str | None, rand: float, count: int, delay_ms: int) -> None:
    job = msgspec.structs.replace(envelope(attempts=2, exceptions=1), headers={REFUSED: header} if header else None)
    outcome = outcome_of(LimitReached("mail"), Policy(tries=1), job, rand)
    assert outcome == RunAgain(delay_ms, 2, 1, refusals=Refusals(count, "mail"), reason="the limit mail is reached")
