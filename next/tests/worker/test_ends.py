"""What a child may still hold when it ends in order."""

import os

import pytest

from delayq.core.options import Options
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.worker.consumer import RedisConsumer
from delayq.worker import supervisor
from delayq.worker.shared_memory import SlotTable
from delayq.worker.supervisor import ChildProcess, Supervisor
from tests.support.fakes import FakeKeeper, delivery
from tests.support.queue import QueueOnServer


def test_a_wait_that_a_signal_ends_brings_what_was_delivered_meanwhile(queue: QueueOnServer, url: str) -> None:
    queue.schedule("job")
    queue.read("dq:a:1:x")
    wake_fd, signal_fd = os.pipe()
    os.write(signal_fd, b"x")
    executor = Executor(BlockingLeaf(Address(url), wake_fd=wake_fd))
    consumer = RedisConsumer(executor, queue.keys, ["orders"], Options(), name="dq:a:1:x")
    assert [job.id for job in consumer.wait(5)] == ["job"]


def test_what_an_ended_child_was_given_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = FakeKeeper(delivery(1))
    slots = SlotTable(["q"])
    parent = Supervisor(keeper, lambda name, slots: 0, lambda: slots, lease=30, processes=1)
    parent.children = [ChildProcess(slots, "dq:a:1:x", process_id=7)]
    monkeypatch.setattr(supervisor, "reap", lambda: [(7, 0)])
    parent.reap()
    parent.settle_for_ended()
    assert keeper.settled == ([], [delivery(1).held], [])
