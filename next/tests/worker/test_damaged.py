"""A queue whose stream is damaged stops no other queue."""

from collections.abc import Sequence

import pytest
import redis

from delayq.backends.values import Acked, Delivery, SettleAnswer, Settlement
from delayq.core.errors import CallRefused, NodeUnavailable
from delayq.core.options import Options
from delayq.core.outages import Outages
from delayq.core.resting import RestingQueues
from delayq.redis.backend import RedisBackend
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from delayq.settings.model import load_settings
from delayq.worker.sidecar import _loops
from tests.support.fakes import FakeClock
from tests.support.queue import QueueOnServer

NAME = "dq:a:1:x"
QUEUES = ["damaged", "orders"]


@pytest.fixture
def consumer(queue: QueueOnServer, url: str, keys: Keys) -> RedisConsumer:
    """A consumer of a damaged queue and of `orders`, where one job is ready."""
    queue.schedule("job")
    queue.server.set(keys.of_queue("damaged", "stream"), "no stream")
    return RedisConsumer(ServerExecutor(BlockingLeaf(Address(url))), keys, QUEUES, Options(), name=NAME)


def exchange(consumer: RedisConsumer, *settled: Settlement) -> tuple[Sequence[object], list[Delivery]]:
    return consumer.complete(consumer.begin(settled, 1))


def test_the_other_queue_is_opened_read_and_waited_for(consumer: RedisConsumer, queue: QueueOnServer) -> None:
    assert consumer.open() == 30
    assert [job.id for job in consumer.wait(0.1)] == ["job"]
    assert [job.id for job in consumer.pending()] == ["job"]


def test_a_wait_that_is_refused_reads_the_queues_one_by_one(consumer: RedisConsumer) -> None:
    assert [job.id for job in consumer.wait(0.1)] == ["job"]


def test_the_other_queue_is_read_and_settled_in_the_same_trip(consumer: RedisConsumer, queue: QueueOnServer) -> None:
    _, (job,) = exchange(consumer)
    consumer._resting._until.clear()
    queue.server.set(consumer._keys.of_queue("damaged", "entries"), "no hash")
    (refused, done), _ = exchange(consumer, Acked("damaged", "other", "1-0"), Acked("orders", job.id, job.entry))
    assert isinstance(refused, Exception)
    assert done == SettleAnswer.SETTLED
    assert queue.place_of("job") == "nowhere"


def test_the_trouble_of_a_queue_is_told_once_in_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    resting = RestingQueues(clock=clock)
    for _ in range(12):
        resting.rest("damaged", CallRefused("WRONGTYPE"))
        clock.now += 1
    assert [record.getMessage() for record in caplog.records] == [
        "queue damaged failed; next try in 1 s: WRONGTYPE",
        "queue damaged failed; next try in 1 s (6 times): WRONGTYPE",
        "queue damaged failed; next try in 1 s (11 times): WRONGTYPE",
    ]


def test_the_end_of_an_error_is_told_when_the_queue_has_worked_for_five_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    resting = RestingQueues(clock=clock)
    for _ in range(3):
        resting.values(["damaged"], [CallRefused("WRONGTYPE")])
        clock.now += 2
        resting.values(["damaged", "orders"], ["a successful call of another kind", "an answer"])
    clock.now += 3
    for _ in range(2):
        resting.values(["damaged", "orders"], ["an answer", "an answer"])
    resting.rest("damaged", CallRefused("WRONGTYPE"))
    assert caplog.messages == [
        "queue damaged failed; next try in 1 s: WRONGTYPE",
        "this error has ended: queue damaged failed",
        "queue damaged failed; next try in 1 s: WRONGTYPE",
    ]


def test_a_node_that_fails_is_told_once_for_all_its_queues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    resting = RestingQueues(clock=clock)
    for queue, node in (("a", "10.0.0.1:7000"), ("b", "10.0.0.1:7000"), ("c", "10.0.0.2:7000")):
        error = NodeUnavailable("no answer")
        error.node = node
        resting.rest(queue, error)
    clock.now += 6
    resting.worked(["a", "b"])
    assert caplog.messages == [
        "node 10.0.0.1:7000 failed; left alone for up to 2 s: no answer",
        "node 10.0.0.2:7000 failed; left alone for up to 2 s: no answer",
        "this error has ended: node 10.0.0.1:7000 failed",
    ]


def test_a_node_that_fails_is_told_once_for_all_loops_of_a_process(
    url: str, queue: QueueOnServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    keeper = RedisBackend(load_settings(url=url)).queue_keeper(["a"], name="me")
    loops = _loops(keeper, Options(), 30, wake_ups=None)
    clock = FakeClock()
    for loop in loops:
        loop.resting._clock = loop.resting._outages._clock = clock
        error = NodeUnavailable("no answer")
        error.node = "10.0.0.1:7000"
        loop.resting.rest("a", error)
    clock.now += 6
    for loop in loops:
        loop.resting.worked(["a"])
    assert caplog.messages == [
        "node 10.0.0.1:7000 failed; left alone for up to 2 s: no answer",
        "this error has ended: node 10.0.0.1:7000 failed",
    ]


def test_the_end_of_an_error_is_told_when_all_shards_of_the_queue_have_worked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    resting = RestingQueues(clock=clock)
    for shard in "q", "q#1":
        resting.rest(shard, CallRefused("WRONGTYPE"))
    clock.now += 6
    resting.worked(["q#1"])
    assert len(caplog.messages) == 1
    resting.worked(["q"])
    assert caplog.messages[1:] == ["this error has ended: queue q failed"]


def test_the_end_of_an_error_of_a_node_is_told_also_when_its_queue_failed_in_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    resting = RestingQueues(clock=clock)
    error = NodeUnavailable("no answer")
    error.node = "10.0.0.1:7000"
    resting.rest("a", error)
    clock.now += 2
    resting.rest("a", CallRefused("WRONGTYPE"))
    clock.now += 6
    resting.worked(["a"])
    assert caplog.messages[2:] == [
        "this error has ended: node 10.0.0.1:7000 failed",
        "this error has ended: queue a failed",
    ]


def test_the_end_of_an_error_is_told_when_all_loops_of_a_process_have_worked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    outages = Outages(clock=clock)
    one, two = RestingQueues(outages=outages, clock=clock), RestingQueues(outages=outages, clock=clock)
    one.rest("damaged", CallRefused("WRONGTYPE"))
    for _ in range(7):
        clock.now += 1
        one.worked(["damaged"])
        two.rest("damaged", CallRefused("WRONGTYPE"))
    assert caplog.messages == [
        "queue damaged failed; next try in 1 s: WRONGTYPE",
        "queue damaged failed; next try in 1 s (6 times): WRONGTYPE",
    ]
    clock.now += 5
    two.worked(["damaged"])
    assert caplog.messages[2:] == ["this error has ended: queue damaged failed"]


def test_the_end_of_an_error_at_the_start_of_a_process_is_not_told(
    consumer: RedisConsumer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the start of a process creates missing parts of a queue. The success of a later call has no meaning."""
    caplog.set_level("INFO")
    clock = FakeClock()
    consumer._resting = RestingQueues(clock=clock)
    consumer.open()
    clock.now += 10
    consumer._resting.worked(["damaged"])
    assert [message.partition(":")[0] for message in caplog.messages] == ["queue damaged failed; next try in 1 s"]


def test_skipped_calls_to_a_node_that_fails_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    resting = RestingQueues(clock=clock)

    def fail(message: str, *, skipped: bool) -> None:
        error = NodeUnavailable(message)
        error.node, error.was_skipped = "10.0.0.1:7000", skipped
        resting.rest("a", error)

    fail("a moment ago", skipped=True)
    for clock.now in (clock.now + second for second in range(1, 8)):
        fail("a moment ago", skipped=True)
    fail("no answer", skipped=False)
    assert caplog.messages == [
        "node 10.0.0.1:7000 failed; left alone for up to 2 s: a moment ago",
        "node 10.0.0.1:7000 failed; left alone for up to 2 s (2 times): no answer",
    ]


def test_a_damaged_queue_is_left_alone_for_a_second(consumer: RedisConsumer, server: redis.Redis) -> None:
    exchange(consumer)
    refusals = server.info("errorstats")["errorstat_WRONGTYPE"]
    for _ in range(3):
        exchange(consumer, Acked("damaged", "other", "1-0"))
    assert server.info("errorstats")["errorstat_WRONGTYPE"] == refusals


def test_a_group_that_the_server_refused_to_create_is_created_later(
    consumer: RedisConsumer, server: redis.Redis, queue: QueueOnServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker with --no-mover has no janitor that would create the group."""
    stream = consumer._keys.of_queue("damaged", "stream")
    server.delete(stream)
    server.execute_command("ACL", "SETUSER", "default", "-xgroup")
    try:
        consumer.open()
        consumer._resting = RestingQueues()
        exchange(consumer)
    finally:
        server.execute_command("ACL", "SETUSER", "default", "+@all")
    consumer._resting = RestingQueues()
    exchange(consumer)
    assert [group["name"] for group in server.xinfo_groups(stream)] == ["delayq"]
    assert "refused tidy in the queue damaged" in caplog.messages[-1]
    assert "NOGROUP" not in caplog.text


def test_the_other_queue_is_renewed_and_settled_after_a_death(
    consumer: RedisConsumer, url: str, keys: Keys, queue: QueueOnServer
) -> None:
    _, (job,) = exchange(consumer)
    keeper = RedisLeaseKeeper(
        ServerExecutor(BlockingLeaf(Address(url))), keys, QUEUES, Options(), Hints(Address(url), keys.cancel)
    )
    assert keeper.renew(NAME, []).more == 1
    assert [delivery.id for delivery in keeper.pending(NAME)] == ["job"]
    keeper.settle_after_death([], [type(job.ref)("damaged", "other", "1-0"), job.ref], [], [])
    assert queue.server.hget(queue.key("meta"), "handed_back_total") == "1"


def test_a_worker_serves_the_queues_it_was_given_also_when_they_are_not_listed(
    url: str, server: redis.Redis, keys: Keys
) -> None:
    def queues() -> list[str]:
        executor = ServerExecutor(BlockingLeaf(Address(url)))
        return RedisQueueKeeper(executor, keys, Options(), name="me", queues=["given"]).queues()

    server.sadd(keys.queues, "listed")
    assert queues() == ["given", "listed"]
    server.set(keys.queues, "damaged")
    assert queues() == ["given"]


def test_a_worker_lists_its_queue_again_when_it_has_jobs(url: str, server: redis.Redis, keys: Keys) -> None:
    """Redis may have come back empty, and a producer that had listed the queue before has sent a job."""
    clock = FakeClock()
    executor = ServerExecutor(BlockingLeaf(Address(url)))
    keeper = RedisQueueKeeper(executor, keys, Options(), name="me", queues=["orders", "other"], clock=clock)
    assert keeper.queues() == ["orders", "other"]
    assert server.smembers(keys.queues) == set()
    server.hset(keys.of_queue("orders", "jobs"), "a", "{}")
    clock.now += 5
    assert keeper.queues() == ["orders", "other"]
    assert server.smembers(keys.queues) == {"orders"}


def test_a_list_of_queues_that_is_refused_is_told_once_then_every_few_seconds_with_the_count(
    url: str, server: redis.Redis, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    keeper = RedisQueueKeeper(
        ServerExecutor(BlockingLeaf(Address(url))), keys, Options(), name="me", queues=["given"], clock=clock
    )
    server.execute_command("ACL", "SETUSER", "default", "-smembers")
    try:
        for _ in range(12):
            assert keeper.queues() == ["given"]
            clock.now += 1
    finally:
        server.execute_command("ACL", "SETUSER", "default", "+@all")
    server.sadd(keys.queues, "listed")
    assert keeper.queues() == ["given", "listed"]
    said = [record.getMessage().partition(": ")[0] for record in caplog.records]
    assert said == [
        "the list of queues cannot be read",
        "the list of queues cannot be read (3 times)",
        "this error has ended",
    ]
    assert caplog.records[-1].getMessage().endswith("the list of queues cannot be read")
    assert not any(record.exc_info for record in caplog.records)


def test_the_jobs_that_fail_with_their_last_recovery_are_returned(queue: QueueOnServer, url: str, keys: Keys) -> None:
    held = [delivery.ref for delivery in queue.reserve("one", "two")]
    hints = Hints(Address(url), keys.cancel)
    options = Options(max_recoveries=0)
    keeper = RedisLeaseKeeper(ServerExecutor(BlockingLeaf(Address(url))), keys, QUEUES, options, hints)
    assert keeper.settle_after_death([], [], held, []) == held
    assert queue.server.hget(queue.key("meta"), "failed_total") == "2"
