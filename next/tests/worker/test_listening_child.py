"""The events of a child, with a backend in memory and a clock that is set by hand."""

from typing import Any

import pytest

from delayq import QueuePaused, QueueResumed, WorkerLooping, job, listener
from delayq.backends.values import Switches
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.child import Child
from delayq.worker.in_flight import InFlight
from delayq.worker.listening_child import HOLD, maker_of_child
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from tests.support.fakes import FakeClock, FakeConsumer, delivery

pytestmark = pytest.mark.usefixtures("no_listeners")


class Consumer(FakeConsumer):
    """A consumer with switches that a test sets."""

    now = Switches()

    def switches(self) -> Switches:
        return self.now


def child_of(consumer: FakeConsumer, clock: FakeClock) -> Child:
    slots = SlotTable(["q", "other"])
    in_flight = InFlight(slots, threads=1, clock=clock)
    registry = Registry()

    @job("ok", registry=registry)
    def ok() -> None:
        clock.now += 0.001

    runner = JobRunner(in_flight, Attempts(registry, now_ms=consumer.now_ms), registry, threads=1)
    return maker_of_child("dq:a:1:0")(consumer, slots, in_flight, runner, lease=30, clock=clock)


def test_a_child_without_listeners_is_a_plain_one() -> None:
    assert type(child_of(FakeConsumer(), FakeClock())) is Child


def test_each_queue_emits_when_its_pause_begins_and_ends() -> None:
    seen: list[Any] = []
    listener(QueuePaused)(seen.append)
    listener(QueueResumed)(seen.append)
    consumer = Consumer()
    child = child_of(consumer, FakeClock())
    child.step()
    consumer.now = Switches(paused=frozenset({"q", "of others"}))
    child.step()
    child.step()
    assert seen == [QueuePaused("q")]
    consumer.now = Switches(is_all_paused=True)
    child.step()
    assert seen[1:] == [QueuePaused("other")]
    consumer.now = Switches()
    child.step()
    assert seen[2:] == [QueueResumed("q"), QueueResumed("other")]


@pytest.mark.parametrize("is_raising", [False, True])
def test_a_listener_stops_the_fetches_of_a_child_for_a_second(is_raising: bool) -> None:
    calls: list[WorkerLooping] = []

    @listener(WorkerLooping)
    def hear(event: WorkerLooping) -> bool:
        calls.append(event)
        if len(calls) == 2 and is_raising:
            raise ValueError("no")
        return len(calls) != 2

    consumer, clock = FakeConsumer(delivery(1), delivery(2)), FakeClock()
    child = child_of(consumer, clock)
    child.step()
    consumer.ready.append(delivery(3))
    child.step()
    child.step()
    assert calls == [WorkerLooping("dq:a:1:0", ("q", "other"))] * 2
    assert len(consumer.settled) >= 1  # settlements go on
    assert len(consumer.ready) >= 1
    clock.now += HOLD
    for _ in range(4):
        child.step()
    assert (len(calls) > 2, consumer.ready) == (True, [])
