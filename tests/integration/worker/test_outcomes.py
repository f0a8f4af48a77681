"""What becomes of a job after its handler: every outcome, end to end."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from delayq.core.backoff import Fixed
from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.signals import Discard, Fail, Retry, Snooze
from delayq.core.states import State
from delayq.jobs.context import JobContext
from delayq.worker.options import StopReason
from tests.support.station import QUEUE, Station


def test_a_job_that_is_done_is_gone(station: Station) -> None:
    seen = station.tape()

    def close(order_id: int) -> None:
        seen.append(order_id)

    station.handles("close", close)
    station.client.schedule("close", {"order_id": 42}, id="o1")
    assert station.drain() is StopReason.EMPTY
    assert seen == [42]
    assert station.state("o1") is State.ABSENT
    assert station.ends("o1") == ["done"]


def test_an_async_handler_is_awaited(station: Station) -> None:
    seen = station.tape()

    async def close(order_id: int) -> None:
        await asyncio.sleep(0)
        seen.append(order_id)

    station.handles("close", close)
    station.client.schedule_many([{"name": "close", "data": {"order_id": n}} for n in range(5)])
    station.drain()
    assert seen == [0, 1, 2, 3, 4]


def test_what_a_plain_function_returns_is_awaited_if_it_can_be(station: Station) -> None:
    seen = station.tape()

    async def work() -> None:
        seen.append("worked")

    station.handles("close", work)
    station.client.schedule("close", id="o1")
    station.drain()
    assert seen == ["worked"]
    assert station.state("o1") is State.ABSENT


def test_tries_backoff_and_the_failure_of_the_last(station: Station) -> None:
    """Three tries with 10 ms and 20 ms between them; the failure tells all three, and the first in full."""
    station.now_ms = 1_800_000_000_000

    def close(context: JobContext) -> None:
        raise ValueError(f"attempt {context.attempt} of {context.tries}")

    station.handles("close", close)
    station.client.schedule("close", id="o1", tries=3, backoff=["10s", "20s"])
    station.drain()
    after_one = station.job("o1")
    assert (after_one.state, after_one.due_ms) == (State.SCHEDULED, station.now_ms + 10_000)
    assert after_one.envelope is not None
    assert after_one.envelope.attempts == 1
    station.now_ms += 10_000
    station.drain(mover=True)
    assert station.job("o1").due_ms == station.now_ms + 20_000
    station.now_ms += 20_000
    station.drain(mover=True)
    failed = station.job("o1")
    assert failed.state is State.FAILED
    assert failed.envelope is not None
    assert failed.envelope.attempts == 3
    assert failed.failure is not None
    assert (failed.failure.type, failed.failure.message) == ("ValueError", "attempt 3 of 3")
    assert "test_outcomes.py" in failed.failure.traceback
    assert "attempt 3 of 3" in failed.failure.traceback
    assert [(past.message, past.attempt) for past in failed.failure.history] == [
        ("attempt 1 of 3", 1),
        ("attempt 2 of 3", 2),
    ]
    assert "raise ValueError" in failed.failure.history[0].traceback
    assert station.ends("o1") == ["released", "released", "failed"]


def test_a_job_that_fails_once_and_then_works_leaves_nothing(station: Station) -> None:
    calls = station.tape()

    def close(context: JobContext) -> None:
        calls.append(context.attempt)
        if context.attempt == 1:
            raise OSError("not yet")

    station.handles("close", close, backoff="10ms")
    with station.working(mover=True):
        station.client.schedule("close", id="o1")
        station.until("o1", State.ABSENT)
    assert calls == [1, 2]
    assert station.connector.commands().hlen(station.keys().of("errors")) == 0


def test_a_snooze_costs_no_attempt(station: Station) -> None:
    attempts = station.tape()

    def close(context: JobContext) -> None:
        attempts.append(context.attempt)
        if len(attempts) < 4:
            raise Snooze("10ms")

    station.handles("close", close)
    with station.working(mover=True):
        station.client.schedule("close", id="o1", tries=1)
        station.until("o1", State.ABSENT)
    assert attempts == [1, 1, 1, 1]
    assert station.ends("o1") == ["snoozed", "snoozed", "snoozed", "done"]


def test_retry_fail_and_discard(station: Station) -> None:
    station.now_ms = 1_800_000_000_000
    wishes: dict[str, BaseException] = {
        "again": Retry("5m", reason="rates not there"),
        "never": Fail("the order is a fake"),
        "forget": Discard(),
    }

    def close(what: str) -> None:
        raise wishes[what]

    station.handles("close", close, retention="1h")
    for what in wishes:
        station.client.schedule("close", {"what": what}, id=what)
    station.drain()
    again, never = station.job("again"), station.job("never")
    assert (again.state, again.due_ms) == (State.SCHEDULED, station.now_ms + 300_000)
    assert again.envelope is not None
    assert again.envelope.attempts == 1
    assert never.state is State.FAILED
    assert never.failure is not None
    assert (never.failure.type, never.failure.message) == ("Fail", "the order is a fake")
    assert station.state("forget") is State.ABSENT, "a discarded job is not kept, whatever the retention"


def test_the_last_try_asked_for_by_the_handler_fails(station: Station) -> None:
    def close() -> None:
        raise Retry("1s")

    station.handles("close", close)
    station.client.schedule("close", id="o1", tries=1)
    station.drain()
    assert station.state("o1") is State.FAILED


def test_retention_keeps_the_result_until_it_is_over(station: Station) -> None:
    station.now_ms = 1_800_000_000_000
    station.handles("sum", lambda a, b: {"sum": a + b})
    station.client.schedule("sum", {"a": 1, "b": 2}, id="kept", retention="1m")
    station.client.schedule("sum", {"a": 1, "b": 2}, id="gone")
    station.drain()
    kept = station.job("kept")
    assert (kept.state, kept.result, kept.forget_ms) == (State.COMPLETED, {"sum": 3}, station.now_ms + 60_000)
    assert station.state("gone") is State.ABSENT
    station.now_ms += 60_001
    station.driver.tidy(QUEUE)
    assert station.state("kept") is State.ABSENT


def test_a_result_that_is_no_json_is_said_and_costs_nothing(station: Station) -> None:
    station.handles("odd", object)
    station.client.schedule("odd", id="o1", retention="1m")
    station.drain()
    kept = station.job("o1")
    assert (kept.state, kept.result) == (State.COMPLETED, None)
    assert "its result cannot be kept as JSON" in station.said()


def test_an_unknown_name_waits_an_hour_for_a_worker_that_knows_it(station: Station) -> None:
    """A rolling deploy: no attempt is charged, and a worker with newer code runs the job."""
    station.handles("known", lambda: None)
    station.client.schedule("close", id="o1", tries=1)
    with station.working(mover=True):
        station.until("o1", State.SCHEDULED)
    waiting = station.job("o1")
    assert waiting.envelope is not None
    assert waiting.failure is not None
    assert (waiting.envelope.attempts, waiting.failure.type) == (0, "UnknownJob")
    assert UNKNOWN_SINCE in (waiting.envelope.headers or {})
    station.handles("close", lambda: None)
    with station.working(mover=True):
        station.until("o1", State.ABSENT)
    assert station.ends("o1")[-1] == "done"
    assert set(station.ends("o1")[:-1]) == {"released"}


def test_an_unknown_name_is_released_and_failed_after_its_tries(station: Station) -> None:
    station.handles("known", lambda: None)
    hour_ago = str(station.client.stats(QUEUE)[0].now_ms - 3_600_001)
    with station.working(mover=True):
        station.client.schedule("nobody.knows", id="o1", tries=2, headers={UNKNOWN_SINCE: hour_ago})
        station.until("o1", State.FAILED)
    failed = station.job("o1")
    assert failed.failure is not None
    assert failed.failure.type == "UnknownJob"
    assert "'nobody.knows'" in failed.failure.message
    assert "known" in failed.failure.message
    assert station.ends("o1") == ["released", "failed"]


def test_a_payload_that_does_not_fit_the_parameters_is_a_failure(station: Station) -> None:
    station.handles("close", lambda order_id: None)
    station.client.schedule("close", {}, id="o1", tries=1)
    station.drain()
    failure = station.job("o1").failure
    assert failure is not None
    assert failure.type == "InvalidPayload"
    assert "order_id" in failure.message


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        RecursionError("deep"),
        asyncio.CancelledError(),
        BaseException("x"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_whatever_a_handler_raises_costs_an_attempt_and_not_the_worker(
    station: Station, error: BaseException, kind: str
) -> None:
    ran = station.tape()

    def bad() -> None:
        raise error

    async def bad_async() -> None:
        await asyncio.sleep(0)
        raise error

    async def good_async() -> None:
        await asyncio.sleep(0)
        ran.append("good")

    def good() -> None:
        ran.append("good")

    handlers: dict[str, Any] = {"sync": (bad, good), "async": (bad_async, good_async)}
    station.handles("bad", handlers[kind][0])
    station.handles("good", handlers[kind][1])
    station.client.schedule("bad", id="bad", tries=1)
    station.client.schedule("good", id="good")
    assert station.drain() is StopReason.EMPTY
    assert ran == ["good"]
    failure = station.job("bad").failure
    assert failure is not None
    assert failure.type == type(error).__name__


def test_a_memory_error_ends_its_process_after_the_job(station: Station) -> None:
    """What is left of a process that ran out of memory is not to be trusted; the next job runs in another one."""
    pids = station.tape()

    def hungry() -> None:
        pids.append(os.getpid())
        raise MemoryError

    station.handles("hungry", hungry, backoff=Fixed(60_000))
    station.handles("next", lambda: pids.append(os.getpid()))
    station.client.schedule("hungry", id="o1")
    station.client.schedule("next", id="o2")
    assert station.drain() is StopReason.EMPTY
    after = station.job("o1")
    assert after.state is State.SCHEDULED
    assert after.envelope is not None
    assert after.envelope.attempts == 1
    assert station.state("o2") is State.ABSENT
    assert len(set(pids)) == 2
