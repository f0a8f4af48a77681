"""Async handlers in the event loop of a child: what they leave behind, and the context they run in."""

# ruff: noqa: RUF006 -- these tasks are left behind on purpose

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Final

import pytest

from delayq.backends.values import Acked, Failed, Released, Settlement
from delayq.core.control_flow import JobTimedOut, Snooze, WorkerShutdown
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners import event_loop
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotState, SlotTable
from tests.support.fakes import delivery
from tests.support.waiting import wait_until

AsyncHandler = Callable[[], Coroutine[Any, Any, None]]

tenant: Final = ContextVar("tenant", default="nobody")


class LoopUnderTest:
    """An executor with one async handler, whose end of each job is noted among what the handler notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.registry = Registry()
        self.in_flight = InFlight(SlotTable(["q"]), threads=4)
        self.executor: JobRunner | None = None
        self.ended: dict[JobInFlight, Settlement] = {}

    def start(self, handler: AsyncHandler, *, number: int = 1) -> JobInFlight:
        """Start a job of this handler."""
        if self.executor is None:
            job("ok", tries=1, registry=self.registry)(handler)
            attempts = Attempts(self.registry, now_ms=lambda: 1_800_000_000_000)
            self.executor = JobRunner(self.in_flight, attempts, self.registry, threads=4)
        self.in_flight.add([delivery(number)], read_at=0)
        held = self.in_flight.next_job()
        assert held is not None
        assert self.in_flight.start(held, now=0.0)
        self.executor.execute(held)
        return held

    def run(self, handler: AsyncHandler, *, number: int = 1) -> Settlement:
        """Run a job to its end."""
        held = self.start(handler, number=number)
        return self.end_of(held)

    def end_of(self, held: JobInFlight) -> Settlement:
        wait_until(lambda: self.has_ended(held))
        self.notes.append("settled")
        return self.ended[held]

    def state_of(self, held: JobInFlight) -> SlotState:
        (state,) = [view.state for view in self.in_flight.slots.read() if view.number == held.slot]
        return state

    def has_ended(self, held: JobInFlight) -> bool:
        finished = self.in_flight.take_finished()
        self.ended |= dict(finished)
        self.in_flight.free([held for held, _ in finished])
        return held in self.ended


@pytest.fixture
def loop() -> Iterator[LoopUnderTest]:
    under_test = LoopUnderTest()
    yield under_test
    if under_test.executor is not None:
        under_test.executor.close()


def test_tasks_that_a_handler_leaves_are_cancelled_and_awaited(
    loop: LoopUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.05)
            loop.notes.append("cleaned up")

    async def handler() -> None:
        async with asyncio.timeout(1000):
            asyncio.create_task(left(), name="mail")
            await asyncio.sleep(0)
        loop.notes.append("returned")

    with caplog.at_level(logging.WARNING):
        assert isinstance(loop.run(handler), Acked)
    assert loop.notes == ["returned", "cleaned up", "settled"]
    assert "job job-1 left 1 tasks running; they are cancelled: mail" in caplog.text


def test_a_task_that_a_task_started_is_ended_too(loop: LoopUnderTest) -> None:
    async def inner() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            loop.notes.append("inner ended")

    async def outer() -> None:
        asyncio.create_task(inner())
        await asyncio.sleep(1000)

    async def handler() -> None:
        asyncio.create_task(outer())
        await asyncio.sleep(0.01)
        raise ValueError("why")

    assert isinstance(loop.run(handler), Failed)
    assert loop.notes == ["inner ended", "settled"]


def test_the_tasks_of_an_interrupted_job_are_ended_and_those_of_others_go_on(loop: LoopUnderTest) -> None:
    async def child_task() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            loop.notes.append("ended")

    async def handler() -> None:
        asyncio.create_task(child_task())
        loop.notes.append("began")
        await asyncio.sleep(1000)

    first, second = loop.start(handler, number=1), loop.start(handler, number=2)
    wait_until(lambda: loop.notes == ["began", "began"])
    assert loop.executor is not None
    for held in (first, second):
        loop.executor.interrupt(held, JobTimedOut("late"))
        settlement = loop.end_of(held)
        assert isinstance(settlement, Failed)
        assert b"JobTimedOut" in settlement.failure
    assert loop.notes == ["began", "began", "ended", "settled", "ended", "settled"]


def test_an_interruption_that_comes_while_tasks_are_ended_changes_nothing(loop: LoopUnderTest) -> None:
    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            loop.notes.append("cleaning up")
            await asyncio.sleep(0.2)

    async def handler() -> None:
        asyncio.create_task(left())
        await asyncio.sleep(0)

    held = loop.start(handler)
    wait_until(lambda: loop.notes == ["cleaning up"])
    assert loop.executor is not None
    loop.executor.interrupt(held, JobTimedOut("late"))
    assert isinstance(loop.end_of(held), Acked)


def test_a_task_that_ignores_its_cancel_is_named_and_the_job_ends(
    loop: LoopUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "LEFT_OVER_WAIT", 0.05)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            loop.notes.append("ignored")
            await asyncio.sleep(0.5)
        loop.notes.append("ended")

    async def handler() -> None:
        asyncio.create_task(stubborn())
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        assert isinstance(loop.run(handler), Acked)
    assert loop.notes == ["ignored", "settled"]
    assert "job job-1: 1 of these tasks ignored the cancellation and still run" in caplog.text
    wait_until(lambda: loop.notes[-1] == "ended")


def test_each_async_handler_and_its_tasks_share_a_context_that_the_next_does_not_see(loop: LoopUnderTest) -> None:
    async def look() -> None:
        loop.notes.append(tenant.get())

    async def handler() -> None:
        await look()
        tenant.set("shop")
        await asyncio.create_task(look())

    for number in (1, 2):
        loop.run(handler, number=number)
    assert loop.notes == ["nobody", "shop", "settled"] * 2


def test_a_job_that_waits_for_the_event_loop_is_shown_as_waiting_and_its_time_has_not_begun(
    loop: LoopUnderTest,
) -> None:
    go_on = threading.Event()

    async def handler() -> None:
        loop.notes.append("began")
        go_on.wait(20)  # keeps the loop to itself

    first, second = loop.start(handler, number=1), loop.start(handler, number=2)
    wait_until(lambda: loop.notes == ["began"])
    assert [loop.state_of(held) for held in (first, second)] == [SlotState.RUNNING, SlotState.WAITING]
    assert (first.limit, second.limit) == (60, 0)
    go_on.set()
    for held in (first, second):
        loop.end_of(held)
    assert second.limit == 60


def test_a_snooze_of_a_task_group_costs_no_attempt(loop: LoopUnderTest) -> None:
    async def ask_bank() -> None:
        raise Snooze("1h")

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_bank())

    settlement = loop.run(handler)
    assert isinstance(settlement, Released)
    assert (settlement.delay_ms, settlement.failure) == (3_600_000, b"")


def test_an_interrupted_task_group_ends_by_the_interruption(loop: LoopUnderTest) -> None:
    """A task that raises while it is cancelled hides the cancellation of the group."""

    async def raises_when_cancelled() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("in the clean-up") from None

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(raises_when_cancelled())
            loop.notes.append("started")

    held = loop.start(handler)
    wait_until(lambda: loop.notes == ["started"])
    assert loop.executor is not None
    loop.executor.interrupt(held, WorkerShutdown("grace"))
    settlement = loop.end_of(held)
    assert isinstance(settlement, Released)
    assert (settlement.delay_ms, settlement.failure) == (0, b"")
    assert b'"attempts":0' in settlement.envelope
