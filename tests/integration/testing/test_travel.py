"""The virtual clock, on the real scripts: what falls due runs, when it is due, in order, and nothing else does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from delayq import (
    Discard,
    Fail,
    InvalidInput,
    Job,
    JobContext,
    Manager,
    Retry,
    Snooze,
    State,
    dispatch,
    dispatch_many,
)
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.outcome import GiveUp, Release
from delayq.core.states import Answer
from delayq.jobs.dispatch import named
from delayq.settings.tables import ConnectionSettings
from delayq.testing import Attempted, Travel, travelling

MINUTE_MS = 60_000


@pytest.fixture
def acting(delayq_travel: Travel) -> type[Any]:
    """A job that does what the test says, and notes when it ran."""

    class Acting(Job, name="act", tries=3, backoff=["1m", "10m"]):
        text: str = ""
        act: ClassVar[Callable[[Any, JobContext], Any]] = lambda job, context: None
        ran: ClassVar[list[tuple[str, int]]] = []
        began: ClassVar[int] = delayq_travel.now_ms

        def handle(self, context: JobContext) -> Any:
            self.ran.append((self.text, delayq_travel.now_ms - self.began))
            return type(self).act(self, context)

    return Acting


def raising(error: BaseException) -> Callable[[Any, JobContext], Any]:
    def act(job: Any, context: JobContext) -> None:
        raise error

    return act


def words(attempts: list[Attempted]) -> list[str]:
    return [attempt.ended for attempt in attempts]


def test_a_job_runs_when_it_is_due_and_not_before(delayq_travel: Travel, acting: Any) -> None:
    ref = acting(text="a").dispatch(delay="15m")
    assert ref.due_ms == acting.began + 15 * MINUTE_MS
    assert delayq_travel(timedelta(minutes=14, seconds=59, milliseconds=999)) == []
    [attempt] = delayq_travel("1ms")
    assert (attempt.id, attempt.name, attempt.queue, attempt.attempt) == (ref.id, "act", "orders", 1)
    assert (attempt.ended, attempt.due_ms, attempt.at_ms) == ("done", ref.due_ms, ref.due_ms)
    assert attempt.at == delayq_travel.now
    assert delayq_travel("1w") == []
    assert delayq_travel.attempts == [attempt]
    assert delayq_travel.now_ms == acting.began + 15 * MINUTE_MS + 7 * 86_400_000


def test_each_runs_at_its_own_time_in_order_over_all_queues(delayq_travel: Travel, acting: Any) -> None:
    for text, minutes, queue in (("c", 3, "orders"), ("a", 1, "vip"), ("b", 2, "orders"), ("d", 4, "a")):
        acting(text=text).on_queue(queue).dispatch(delay=f"{minutes}m")
    delayq_travel("10m")
    assert acting.ran == [("a", MINUTE_MS), ("b", 2 * MINUTE_MS), ("c", 3 * MINUTE_MS), ("d", 4 * MINUTE_MS)]


def test_many_at_one_instant_run_in_the_order_of_their_ids(delayq_travel: Travel, acting: Any) -> None:
    dispatch_many([named("act", {"text": f"{n:03}"}).having(id=f"j{n:03}", delay="1m") for n in reversed(range(600))])
    assert words(delayq_travel("1m")) == ["done"] * 600
    assert [text for text, _ in acting.ran] == [f"{n:03}" for n in range(600)]


def test_what_is_dispatched_on_the_way_runs_on_the_way(delayq_travel: Travel, acting: Any) -> None:
    def again(job: Any, context: JobContext) -> None:
        if len(job.text) < 3:
            acting(text=job.text + "x").dispatch(delay="1m" if job.text else None)

    acting.act = again
    acting().dispatch()
    delayq_travel("0s")
    assert acting.ran == [("", 0), ("x", 0)]
    delayq_travel("2m")
    assert acting.ran[2:] == [("xx", MINUTE_MS), ("xxx", 2 * MINUTE_MS)]


def test_a_job_that_fails_is_released_by_its_backoff_and_fails_in_the_end(delayq_travel: Travel, acting: Any) -> None:
    acting.act = raising(ValueError("broken"))
    ref = acting().dispatch()
    assert words(delayq_travel("1h")) == ["released", "released", "failed"]
    assert acting.ran == [("", 0), ("", MINUTE_MS), ("", 11 * MINUTE_MS)]
    info = delayq_travel.client.get(ref.id)
    assert info is not None
    assert (info.state, info.failed_ms, info.attempts) == (State.FAILED, acting.began + 11 * MINUTE_MS, 3)
    assert info.failure is not None
    assert (info.failure.message, len(info.failure.history)) == ("broken", 2)
    assert info.failure.history[0].at_ms == acting.began


@pytest.mark.parametrize(
    ("error", "ended", "state"),
    [
        (Snooze("5m"), "snoozed", State.SCHEDULED),
        (Retry("5m"), "released", State.SCHEDULED),
        (Fail("why"), "failed", State.FAILED),
        (Discard(), "discarded", None),
    ],
)
def test_signals_are_settled_as_on_a_worker(
    delayq_travel: Travel, acting: Any, error: BaseException, ended: str, state: State | None
) -> None:
    acting.act = raising(error)
    ref = acting().dispatch()
    [attempt] = delayq_travel("1m")
    assert (attempt.ended, attempt.error) == (ended, error)
    info = delayq_travel.client.get(ref.id)
    assert (info.state if info else None) is state
    if state is State.SCHEDULED:
        assert info is not None
        assert info.due_ms == acting.began + 5 * MINUTE_MS


def test_a_result_is_kept_and_forgotten_in_time(delayq_travel: Travel, acting: Any) -> None:
    acting.act = lambda job, context: {"token": context.token, "due": context.due_ms, "tries": context.tries}
    ref = acting().dispatch(retention="1h")
    [attempt] = delayq_travel("0s")
    info = delayq_travel.client.get(ref.id)
    assert info is not None
    assert (info.state, info.result) == (State.COMPLETED, attempt.result)
    assert attempt.result["token"]
    assert (attempt.result["due"], attempt.result["tries"]) == (acting.began, 3)
    delayq_travel("1h")
    assert delayq_travel.client.get(ref.id) is None


def test_a_failed_job_is_kept_ninety_days(delayq_travel: Travel, acting: Any) -> None:
    acting.act = raising(Fail("why"))
    ref = acting().dispatch()
    delayq_travel("89d")
    assert delayq_travel.client.get(ref.id) is not None
    delayq_travel("1d")
    assert delayq_travel.client.get(ref.id) is None


def test_the_client_has_the_time_of_the_test(delayq_travel: Travel, acting: Any) -> None:
    ref = acting().dispatch(delay="15m", id="order-42")
    delayq_travel("5m")
    moved = delayq_travel.client.reschedule("order-42", delay="15m")
    assert ref.due_ms is not None
    assert moved.due_ms == ref.due_ms + 5 * MINUTE_MS
    delayq_travel("14m")
    assert delayq_travel.client.cancel("order-42") is Answer.CANCELLED
    assert delayq_travel("1d") == []
    assert acting.ran == []


def test_a_paused_queue_waits_until_it_is_resumed_or_its_pause_is_over(delayq_travel: Travel, acting: Any) -> None:
    client = delayq_travel.client
    acting(text="a").dispatch(delay="1m")
    client.pause("orders")
    assert delayq_travel("1h") == []
    client.resume("orders")
    delayq_travel("0s")
    client.pause("orders", length="10m")
    acting(text="b").dispatch()
    delayq_travel("1h")
    assert acting.ran == [("a", 60 * MINUTE_MS), ("b", 70 * MINUTE_MS)]
    acting(text="c").dispatch()
    client.pause("orders")
    assert delayq_travel("1m") == []


def test_what_holds_for_all_workers_holds_here(delayq_travel: Travel, acting: Any) -> None:
    client = delayq_travel.client
    acting(text="a").dispatch()
    client.pause_all(length="10m")
    assert delayq_travel("9m") == []
    delayq_travel("2m")
    acting(text="b").dispatch()
    client.start_maintenance()
    assert delayq_travel("1h") == []
    client.end_maintenance()
    delayq_travel("0s")
    assert acting.ran == [("a", 10 * MINUTE_MS), ("b", 71 * MINUTE_MS)]


def test_limits_are_judged_by_the_clock_of_the_test(delayq_travel: Travel, acting: Any) -> None:
    acting.act = raising(ValueError("broken"))
    acting().dispatch(retry_until="5m", tries=9, backoff="4m")
    assert words(delayq_travel("1h")) == ["released", "released", "failed"]
    assert [at for _, at in acting.ran] == [0, 4 * MINUTE_MS]


def test_what_nobody_handles_ends_as_on_a_worker(delayq_travel: Travel, manager: Manager) -> None:
    dispatch("nobody", tries=2, backoff="1m")
    attempts = delayq_travel("2h")
    assert set(words(attempts)[:-1]) == {"released"}
    assert words(attempts)[-1] == "failed"
    assert all(isinstance(one.error, UnknownJob) for one in attempts)
    counted = [one.outcome.attempts for one in attempts if isinstance(one.outcome, Release | GiveUp)]
    assert counted[-2:] == [1, 2], "after an hour each costs an attempt"
    assert set(counted[:-2]) == {0}


def test_an_envelope_that_cannot_be_read_fails(delayq_travel: Travel, manager: Manager) -> None:
    dispatch("act", id="bad", delay="1m")
    commands = delayq_travel._server.commands()
    commands.hset("delayq:{orders}:jobs", "bad", b"no envelope")
    [attempt] = delayq_travel("1m")
    assert (attempt.id, attempt.name, attempt.ended) == ("bad", "", "failed")
    assert isinstance(attempt.error, BadEnvelope)


def test_what_ends_a_test_inside_a_handler_ends_it(delayq_travel: Travel, acting: Any) -> None:
    def fail(job: Any, context: JobContext) -> None:
        pytest.fail("seen")

    acting.act = fail
    acting().dispatch(id="a")
    with pytest.raises(pytest.fail.Exception, match="seen"):
        delayq_travel("0s")
    acting.act = lambda job, context: None
    assert [(attempt.id, attempt.attempt) for attempt in delayq_travel("0s")] == [("a", 1)]


def test_to_a_point_in_time(delayq_travel: Travel, acting: Any) -> None:
    there = delayq_travel.now + timedelta(days=3)
    acting().dispatch(at=there)
    assert words(delayq_travel.to(there)) == ["done"]
    assert delayq_travel.now == there
    with pytest.raises(InvalidInput, match="has passed"):
        delayq_travel.to(there - timedelta(seconds=1))


def test_no_real_time_passes_and_none_counts(delayq_travel: Travel, acting: Any) -> None:
    began = time.monotonic()
    acting.act = raising(Snooze("1h"))
    acting().dispatch()
    assert len(delayq_travel("1w")) == 7 * 24 + 1
    assert time.monotonic() - began < 20


def test_a_job_that_comes_back_at_once_for_ever_is_found(
    delayq_travel: Travel, acting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.testing.journey.MOST_AT_ONCE", 50)
    acting.act = raising(Snooze("0s"))
    acting().dispatch(id="loop")
    with pytest.raises(RuntimeError, match="50 attempts at one instant, the last of 'loop'"):
        delayq_travel("1m")


def test_all_connections_lead_to_the_private_server_but_local_ones(delayq_travel: Travel, manager: Manager) -> None:
    ran: list[str] = []

    class Noted(Job):
        text: str

        def handle(self) -> None:
            ran.append(self.text)

    manager.define("away", ConnectionSettings(url=None, prefix="other", queue="far"))
    manager.define("pigeon", ConnectionSettings(driver="pigeon"))
    for name in ("away", "pigeon", "sync", "null"):
        Noted(text=name).on_connection(name).dispatch(delay="1m")
    assert ran == ["sync"]
    assert [attempt.queue for attempt in delayq_travel("1m")] == ["orders", "far"]
    assert sorted(ran) == ["away", "pigeon", "sync"]


async def test_async_handlers_and_awaited_verbs(delayq_travel: Travel, manager: Manager) -> None:
    here = asyncio.get_running_loop()
    ran: list[bool] = []

    class Away(Job):
        async def handle(self) -> None:
            ran.append(asyncio.get_running_loop() is here)
            if len(ran) == 1:
                await Away().adispatch(delay="1m")

    await Away().adispatch(delay="1m")
    assert words(await delayq_travel.atravel("1m")) == ["done"]
    assert words(await delayq_travel.ato(delayq_travel.now + timedelta(minutes=1))) == ["done"]
    assert ran == [True, True]
    await Away().adispatch()
    with pytest.raises(InvalidInput, match="event loop") as refused:
        delayq_travel("0s")
    assert refused.value.hint == "Use await delayq_travel.atravel(…)."
    assert words(await delayq_travel.atravel("0s")) == ["done"]


def test_async_handlers_where_no_loop_runs(delayq_travel: Travel, manager: Manager) -> None:
    class Away(Job):
        async def handle(self) -> int:
            await asyncio.sleep(0)
            return 7

    Away().dispatch()
    assert [attempt.result for attempt in delayq_travel("0s")] == [7]


def test_each_test_begins_with_nothing(delayq_travel: Travel) -> None:
    assert delayq_travel.client.queues() == []
    assert delayq_travel._server.commands().dbsize() == 0


def test_a_block_of_its_own_starts_and_ends_a_server(manager: Manager) -> None:
    class Noted(Job):
        def handle(self) -> None: ...

    with travelling(manager=manager) as travel:
        Noted().dispatch(delay="1m")
        assert words(travel("1m")) == ["done"]
        assert repr(travel) == f"<travel: it is {travel.now.isoformat(timespec='milliseconds')[:-6]}Z>"
        url = travel.url
    with travelling(manager=manager) as travel:
        assert travel.url != url
