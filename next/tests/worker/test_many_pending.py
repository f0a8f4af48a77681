"""A child with more pending jobs than one call reads or settles: all of them are recovered at once."""

import pytest

from delayq.core.options import Options
from delayq.redis.connection.factory import make_executor
from delayq.redis.connection.url import Address
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from delayq.worker.children import ChildProcess
from delayq.worker.crash_recovery import CrashRecovery
from delayq.worker.shared_memory import SlotState, SlotTable
from tests.support.queue import OURS, QueueOnServer, large_envelope


@pytest.fixture
def keeper(queue: QueueOnServer, url: str) -> RedisLeaseKeeper:
    address = Address(url)
    hints = Hints(address, queue.keys.cancel)
    return RedisLeaseKeeper(make_executor(address), queue.keys, ["orders"], Options(), hints)


def recover(keeper: RedisLeaseKeeper, child: ChildProcess) -> None:
    def end_of_killed(*_: object) -> None:
        raise AssertionError("no job was killed for itself")

    CrashRecovery(keeper, end_of_killed).step([child], 0.0)  # type: ignore[arg-type]


def test_a_thousand_jobs_of_a_dead_child_are_recovered(queue: QueueOnServer, keeper: RedisLeaseKeeper) -> None:
    jobs = queue.reserve(*(f"job-{number:04}" for number in range(1000)))
    slots = SlotTable(["orders"])
    states = [SlotState.DONE] * 300 + [SlotState.WAITING] * 300 + [SlotState.RUNNING] * 400
    for number, (job, state) in enumerate(zip(jobs, states, strict=True)):
        slots.write(number, job)
        slots.mark(number, state)
    recover(keeper, ChildProcess(slots, consumer=OURS, is_settled=False))
    stats = queue.stats()
    assert (stats.ready, stats.reserved, stats.failed) == (700, 0, 0)
    assert set(queue.rows("recoveries")) == {job.id for job in jobs[600:]}
    assert set(queue.rows("recoveries").values()) == {"1"}


def test_large_jobs_of_a_dead_child_are_recovered_at_once(queue: QueueOnServer, keeper: RedisLeaseKeeper) -> None:
    jobs = [queue.reserve(id, envelope=large_envelope(600_000))[0] for id in "abcdef"]
    slots = SlotTable(["orders"])
    for number, job in enumerate(jobs):
        slots.write(number, job)
        slots.mark(number, SlotState.RUNNING if number < 3 else SlotState.WAITING)
    recover(keeper, ChildProcess(slots, consumer=OURS, is_settled=False))
    stats = queue.stats()
    assert (stats.ready, stats.reserved) == (6, 0)
    assert queue.rows("recoveries") == dict.fromkeys("abc", "1")


def test_a_child_reads_all_its_pending_jobs(queue: QueueOnServer, url: str) -> None:
    jobs = queue.reserve(*(f"job-{number:04}" for number in range(1000)))
    consumer = RedisConsumer(make_executor(Address(url)), queue.keys, ["orders"], Options(), name=OURS)
    assert [job.key for job in consumer.pending()] == [job.key for job in jobs]
