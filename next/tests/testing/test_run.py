"""`run_job` returns the outcome that a worker would settle."""

import asyncio
from typing import Any

import pytest

from delayq import (
    Concurrency,
    Discard,
    Fail,
    FailOnException,
    InvalidInput,
    Job,
    JobContext,
    JobTimedOut,
    Manager,
    Retry,
    Snooze,
    handles,
    job,
)
from delayq.core.errors import DeadlinePassed, TriesExhausted, UnknownJob
from delayq.core.outcome import Done, GiveUp, RunAgain
from delayq.testing import Travel, arun_job, run_job

seen: list[Any] = []


class Raises(Job, name="kit.raises", tries=3, backoff=["10s", "1m"], middleware=[Concurrency("kit", 1)]):
    what: str = ""

    def handle(self, context: JobContext) -> None:
        seen.append((context.attempt, context.tries))
        errors: dict[str, BaseException] = {
            "error": ValueError("no"),
            "snooze": Snooze("5m"),
            "retry": Retry("7s"),
            "fail": Fail("bad"),
            "discard": Discard("old"),
            "timeout": JobTimedOut("late"),
            "exit": KeyboardInterrupt(),
        }
        if self.what:
            raise errors[self.what]

    def failed(self, error: BaseException) -> None:
        seen.append(str(error))


@job("kit.result", retention="1h")
async def with_result(n: int) -> int:
    return n + 1


@handles("KitMailer")
class Mailer:
    def send(self, context: JobContext, data: dict[str, Any]) -> str:
        return f"{data['to']} {context.attempt}"


@pytest.fixture(autouse=True)
def nothing_seen(elsewhere: Manager) -> None:
    seen.clear()


def test_the_outcomes_of_a_first_attempt() -> None:
    assert run_job(Raises()).outcome == Done()
    again = run_job(Raises(what="error"))
    assert isinstance(again.outcome, RunAgain) and (again.outcome.delay_ms, again.outcome.attempts) == (10_000, 1)
    assert isinstance(again.error, ValueError) and again.outcome.error is again.error
    assert run_job(Raises(what="snooze")).outcome == RunAgain(300_000, 0, 0)
    retried = run_job(Raises(what="retry")).outcome
    assert isinstance(retried, RunAgain) and (retried.delay_ms, retried.exceptions) == (7_000, 0)
    assert isinstance(run_job(Raises(what="timeout")).outcome, RunAgain)
    assert run_job(Raises(what="discard")).outcome == Done(discarded="old")
    assert seen == [(1, 3)] * 6
    assert isinstance(run_job(Raises(what="fail")).outcome, GiveUp)
    assert seen[-1] == "bad"


def test_the_last_attempt_fails_the_job() -> None:
    second = run_job(Raises(what="error"), attempts=1).outcome
    assert isinstance(second, RunAgain) and second.delay_ms == 60_000
    last = run_job(Raises(what="error"), attempts=2)
    assert isinstance(last.outcome, GiveUp) and last.outcome.error is last.error
    assert seen == [(2, 3), (3, 3), "no"]
    assert isinstance(run_job(Raises(what="error"), tries=1).outcome, GiveUp)


@job("kit.strict", tries=3, middleware=[FailOnException(ValueError)])
def strict(how: str) -> None:
    if how == "grouped":
        raise ExceptionGroup("two errors", [OSError(), Fail(ValueError("bad image"))])
    raise ValueError("bad image") if how == "raised" else Fail("bad image")


@pytest.mark.parametrize("how", ["raised", "grouped"])
def test_the_error_is_the_exception_inside_a_fail(how: str, delayq_travel: Travel) -> None:
    ran = run_job(strict.job(how))
    assert isinstance(ran.outcome, GiveUp) and ran.error is ran.outcome.error
    assert isinstance(ran.error, ValueError)
    strict.job(how).dispatch()
    (attempted,) = delayq_travel("0s")
    assert (attempted.outcome, repr(attempted.error)) == ("failed", "ValueError('bad image')")
    assert isinstance(run_job(strict.job("text")).error, Fail)


def test_a_job_that_may_not_start() -> None:
    refused = run_job(Raises(), attempts=3)
    assert isinstance(refused.outcome, GiveUp) and isinstance(refused.error, TriesExhausted)
    assert seen == ["All 3 tries were used before this delivery."]
    assert not isinstance(run_job(Raises(), deadline="1h").error, DeadlinePassed)


def test_results_and_names() -> None:
    ran = run_job(with_result.job(1))
    assert (ran.result, ran.outcome) == (2, Done(3_600_000))
    assert run_job("KitMailer@send", {"to": "ann"}, attempts=1).result == "ann 2"
    unknown = run_job("kit.unknown", {"n": 1})
    assert isinstance(unknown.error, UnknownJob) and isinstance(unknown.outcome, RunAgain)
    assert isinstance(run_job("kit.result", {"m": "no"}).outcome, RunAgain)


def test_in_an_event_loop() -> None:
    async def both() -> None:
        assert (await arun_job(with_result.job(1))).result == 2
        assert isinstance((await arun_job(Raises(what="error"), attempts=2)).outcome, GiveUp)
        assert run_job(Raises()).outcome == Done()
        with pytest.raises(InvalidInput, match="already running an event loop"):
            run_job(with_result.job(1))

    asyncio.run(both())


def test_other_errors_are_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_job(Raises(what="exit"))
    for attempts in (-1, 1.5, True):
        with pytest.raises(InvalidInput, match="attempts is"):
            run_job(Raises(), attempts=attempts)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="data= is given"):
        run_job(Raises(), {"what": "x"})
