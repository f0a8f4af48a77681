"""`run_job`: one attempt through everything a job passes on its way, without a server, and its outcome."""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar

import pytest

from delayq import ConfigError, Discard, Exponential, Fail, InvalidInput, Job, JobContext, Manager, Retry, Snooze, job
from delayq.core.errors import InvalidPayload
from delayq.core.outcome import TriesExhausted
from delayq.testing import Ack, GiveUp, Release, arun_job, run_job

SIGNALS = {"snooze": Snooze("5m"), "retry": Retry("5m"), "fail": Fail("why"), "discard": Discard()}


@pytest.fixture
def acting() -> type[Any]:
    class Acting(Job, name="act", tries=3, backoff=["10s", "1m"], delay="1h"):
        what: str = "return"
        seen: ClassVar[list[JobContext]] = []
        heard: ClassVar[list[str]] = []

        def handle(self, context: JobContext) -> None:
            self.seen.append(context)
            if self.what in SIGNALS:
                raise SIGNALS[self.what]
            if self.what == "raise":
                raise ValueError("broken")

        def failed(self, error: BaseException) -> None:
            self.heard.append(str(error))

    return Acting


def test_done_and_discarded(acting: Any) -> None:
    assert run_job(acting()) == Ack()
    assert run_job(acting(what="discard")) == Ack()
    [first, _] = acting.seen
    assert (first.name, first.queue, first.attempt, first.tries, first.token) == ("act", "orders", 1, 3, "")


def test_snoozed_and_released(acting: Any) -> None:
    snoozed, released = run_job(acting(what="snooze")), run_job(acting(what="retry"))
    assert snoozed == Release(300_000, attempts=0, exceptions=0, error=None)
    assert released == Release(300_000, attempts=1, exceptions=0, error=SIGNALS["retry"])


def test_an_error_costs_an_attempt_until_the_last_one(acting: Any) -> None:
    first, second, third = (run_job(acting(what="raise"), attempt=n) for n in (1, 2, 3))
    assert isinstance(first, Release)
    assert isinstance(second, Release)
    assert (first.delay_ms, first.attempts, first.exceptions) == (10_000, 1, 1)
    assert (second.delay_ms, second.attempts) == (60_000, 2)
    assert isinstance(third, GiveUp)
    assert isinstance(third.error, ValueError)
    assert acting.heard == ["broken"]
    assert [context.attempt for context in acting.seen] == [1, 2, 3]


def test_failed_for_good_with_tries_left(acting: Any) -> None:
    assert isinstance(run_job(acting(what="fail")), GiveUp)
    assert acting.heard == ["why"]


def test_what_may_not_start_is_not_handled(acting: Any) -> None:
    outcome = run_job(acting().on_queue("x"), attempt=4)
    assert isinstance(outcome, GiveUp)
    assert isinstance(outcome.error, TriesExhausted)
    assert (acting.seen, len(acting.heard)) == ([], 1)


def test_retry_until_goes_over_tries_here_too(acting: Any) -> None:
    outcome = run_job(acting(what="raise")._dispatch().having(retry_until="1h"), attempt=9)
    assert isinstance(outcome, Release)
    assert outcome.attempts == 9


def test_the_backoff_has_no_luck_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lucky(Job, backoff=Exponential(base_ms=10_000)):
        def handle(self) -> None:
            raise ValueError

    delays = set()
    for luck in (0.0, 0.9):
        monkeypatch.setattr(random, "random", lambda luck=luck: luck)
        outcome = run_job(Lucky())
        assert isinstance(outcome, Release)
        delays.add(outcome.delay_ms)
    assert delays == {15_000}


def test_a_result_is_in_the_outcome_of_a_job_that_is_kept() -> None:
    class Kept(Job, retention="1h"):
        def handle(self) -> dict[str, int]:
            return {"sum": 7}

    assert run_job(Kept()) == Ack(3_600_000, b'{"sum":7}')


def test_functions_and_sentences(acting: Any) -> None:
    ran: list[tuple[int, str]] = []

    @job("order.bill", queue="bills")
    def bill(context: JobContext, order_id: int) -> None:
        ran.append((order_id, context.queue))

    assert run_job(bill.job(order_id=7)) == Ack()
    assert run_job(bill.job(order_id=8).on_queue("vip")) == Ack()
    assert ran == [(7, "bills"), (8, "vip")]


def test_it_goes_through_json(acting: Any) -> None:
    with pytest.raises(InvalidPayload, match="'what'"):
        run_job(acting(what=object()))


def test_a_job_that_vetoes_itself_cannot_be_run(manager: Manager) -> None:
    class Shy(Job, name="shy"):
        def handle(self) -> None: ...

        def prepare_for_dispatch(self) -> bool:
            return False

    with pytest.raises(InvalidInput, match="'shy' vetoed its own dispatch"):
        run_job(Shy())


def test_attempts_count_from_one(acting: Any) -> None:
    with pytest.raises(InvalidInput, match="attempts count from 1"):
        run_job(acting(), attempt=0)


def test_a_bad_setting_is_refused_as_always(acting: Any) -> None:
    with pytest.raises((InvalidInput, ConfigError)):
        run_job(acting().delay("15 minutes"))


async def test_async_jobs_run_in_this_loop() -> None:
    here = asyncio.get_running_loop()

    class Away(Job, tries=1):
        async def handle(self) -> None:
            if asyncio.get_running_loop() is not here:
                raise AssertionError("another loop")

    assert await arun_job(Away()) == Ack()
    with pytest.raises(InvalidInput, match="event loop"):
        run_job(Away())


def test_async_jobs_where_no_loop_runs() -> None:
    class Away(Job):
        async def handle(self) -> None:
            await asyncio.sleep(0)
            raise Snooze("1m")

    assert run_job(Away()) == Release(60_000, 0, 0, None)


def test_an_async_job_that_is_refused_says_what_to_use(manager: Manager) -> None:
    class Away(Job):
        async def handle(self) -> None: ...

    async def inside() -> None:
        run_job(Away())

    with pytest.raises(InvalidInput) as refused:
        asyncio.run(inside())
    assert refused.value.hint == "Use await arun_job(…)."


def test_the_names_of_the_kit_are_there(acting: Any) -> None:
    import delayq.testing as kit

    assert all(getattr(kit, name).__name__ for name in kit.__all__ if name != "Outcome")
    assert kit.run_job(acting()) == kit.Ack()
    with pytest.raises(AttributeError, match=r"'delayq\.testing' has no attribute 'Mock'"):
        kit.Mock  # type: ignore[attr-defined]  # noqa: B018
