"""The repair of a queue, on a real server."""

from typing import TypeVar

import pytest
import redis

from delayq.backends.values import Repaired
from delayq.core.options import Options
from delayq.core.resting import RestingQueues
from delayq.redis import repair
from delayq.redis.calls import delivery, inspect, upkeep
from delayq.redis.calls.call import Call
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.server_clock import ServerClock
from delayq.redis.worker.opening import open_queues
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from tests.support.queue import NOW, SECOND, QueueOnServer, envelope_of, large_envelope

STREAM = "test:{orders}:stream"
PLAIN = "billing"
OURS = "dq:a:1:x"
CHAIN = ',"chain":[{"id":"next","name":"n"}]'

T = TypeVar("T")


def repaired(queue: QueueOnServer, options: Options | None = None) -> Repaired:
    return drive(repair.repair_queue(queue.executor, queue.keys, "orders", options or Options()))


def taken_by(queue: QueueOnServer, consumer: str, *ids: str) -> dict[str, str]:
    """Schedule jobs, let a consumer take them, and return their entries by id."""
    for job_id in ids:
        queue.schedule(job_id)
    return {job.id: job.entry for job in queue.read(consumer)}


def record_consumer(queue: QueueOnServer, consumer: str) -> None:
    """Let one of delayq's consumers show that it is there, as its lease does."""
    queue.run(delivery.renew(queue.keys, "orders", consumer, []))


def test_a_whole_queue_needs_no_repair(queue: QueueOnServer) -> None:
    queue.schedule("one", "+60000")
    taken_by(queue, OURS, "two")
    assert repaired(queue) == repaired(queue) == Repaired()


def test_an_unknown_queue_gets_what_workers_need(queue: QueueOnServer, server: redis.Redis) -> None:
    assert repaired(queue) == Repaired()
    assert server.xinfo_groups(STREAM)[0]["name"] == "delayq"


def test_a_server_that_lost_its_data_is_told_once(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = RedisQueueKeeper(queue.executor, queue.keys, Options(), name="janitor")
    queue.schedule("one")
    for _ in range(2):
        keeper.repair("orders")
    assert caplog.records == []
    server.flushall()
    for _ in range(3):
        keeper.repair("orders")
    (record,) = caplog.records
    assert "queue orders was reset: the sum of its counters fell from 1 to 0" in record.getMessage()


def test_what_a_plain_consumer_acknowledged_is_closed(queue: QueueOnServer, server: redis.Redis) -> None:
    entries = taken_by(queue, PLAIN, "one", "two", "three")
    server.xack(STREAM, "delayq", entries["one"], entries["two"])
    assert repaired(queue).closed == 2
    assert [queue.place_of(job_id) for job_id in ("one", "two", "three")] == ["nowhere", "nowhere", "stream"]
    assert repaired(queue) == Repaired()


def test_more_acknowledgements_than_one_page_are_closed(queue: QueueOnServer, server: redis.Redis) -> None:
    for n in range(600):
        queue.schedule(f"job-{n}")
    taken = [job for _ in range(60) for job in queue.read(PLAIN)]
    server.xack(STREAM, "delayq", *(job.entry for job in taken))
    assert repaired(queue).closed == 600
    assert server.xlen(STREAM) == 0


def test_the_work_of_a_consumer_that_was_deleted_is_delivered_again(queue: QueueOnServer, server: redis.Redis) -> None:
    record_consumer(queue, OURS)
    entries = taken_by(queue, OURS, "one")
    repaired(queue)
    server.xgroup_delconsumer(STREAM, "delayq", OURS)
    taken_by(queue, PLAIN)  # a foreign consumer is there, so that an acknowledgement would be believed
    assert repaired(queue) == Repaired(redelivered=1)
    (again,) = queue.read("dq:b:2:y")
    assert again.id == "one"
    assert again.entry != entries["one"]


def test_a_consumer_that_is_deleted_between_two_pages_loses_no_job(
    queue: QueueOnServer, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job was pending on the first page, so this pass cannot see it. The next pass must deliver it again."""
    record_consumer(queue, OURS)
    queue.reserve("ours", consumer=OURS, envelope=large_envelope(1_100_000))  # a page ends after 1 MB
    queue.reserve("two", consumer=PLAIN, envelope=large_envelope(1_100_000))
    queue.reserve("three", consumer=PLAIN)
    pages = 0
    run = Executor.run

    async def run_and_delete_after_first_page(executor: Executor, call: Call[T]) -> T:
        nonlocal pages
        value = await run(executor, call)
        if isinstance(value, upkeep.OutsideAcks):
            pages += 1
            if pages == 1:
                server.xgroup_delconsumer(STREAM, "delayq", OURS)
        return value

    monkeypatch.setattr(Executor, "run", run_and_delete_after_first_page)
    assert (repaired(queue), pages) == (Repaired(), 3)
    assert repaired(queue) == Repaired(redelivered=1)
    assert [job.id for job in queue.read("dq:b:2:y")] == ["ours"]


@pytest.mark.parametrize("fields", [{"x": "1"}, {"id": "ghost", "job": "{}"}, {"job": "no id"}])
def test_an_entry_that_is_no_job_is_buried_with_its_bytes(
    queue: QueueOnServer, server: redis.Redis, fields: dict[str, str]
) -> None:
    queue.schedule("one")
    entry = str(server.xadd(STREAM, fields))  # type: ignore[arg-type]
    assert repaired(queue).buried == 1
    job = queue.run(inspect.get(queue.keys, "orders", f"x-{entry}"))
    assert job is not None and job.failure is not None
    assert (job.state, job.failure.type) == ("failed", "NoJob")
    assert job.raw.decode() == fields.get("job", "x=1")
    assert [delivery.id for delivery in queue.read()] == ["one"]


def test_a_job_without_its_entry_is_appended_again(queue: QueueOnServer, server: redis.Redis) -> None:
    server.xdel(STREAM, taken_by(queue, OURS, "one")["one"])
    assert repaired(queue).mended == 1
    assert [delivery.id for delivery in queue.read("dq:b:2:y")] == ["one"]


def test_a_job_in_two_places_keeps_the_one_nearest_to_a_worker(queue: QueueOnServer, server: redis.Redis) -> None:
    taken_by(queue, OURS, "one")
    server.zadd(queue.key("scheduled"), {"one": NOW})
    assert repaired(queue).mended == 1
    assert queue.place_of("one") == "stream"


def test_a_job_without_a_place_is_scheduled(queue: QueueOnServer, server: redis.Redis) -> None:
    queue.schedule("one", "+60000")
    server.zrem(queue.key("scheduled"), "one")
    assert repaired(queue).mended == 1
    assert queue.place_of("one") == "scheduled"


def test_a_job_without_its_payload_fails(queue: QueueOnServer, server: redis.Redis) -> None:
    queue.schedule("one", "+60000")
    server.hdel(queue.key("jobs"), "one")
    assert repaired(queue).mended == 1
    job = queue.run(inspect.get(queue.keys, "orders", "one"))
    assert job is not None and job.failure is not None
    assert (job.state, job.is_lost, job.failure.type) == ("failed", True, "PayloadLost")


def test_an_id_of_foreign_bytes_is_mended_too(queue: QueueOnServer, server: redis.Redis) -> None:
    server.hset(queue.key("jobs"), b"\xff", "foreign")
    assert repaired(queue).mended == 1
    assert server.zcard(queue.key("scheduled")) == 1


def test_a_stream_that_was_lost_comes_back_with_its_jobs(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    taken_by(queue, OURS, "one", "two")
    queue.schedule("three")
    server.delete(STREAM)
    assert repaired(queue).mended == 3
    assert caplog.messages == [
        "queue orders was damaged, and was repaired: jobs without a stream entry, ready again (a job that still runs "
        "may run twice): 3. Another program changed its keys, or Redis lost data."
    ]
    assert sorted(delivery.id for delivery in queue.read("dq:b:2:y")) == ["one", "three", "two"]


def test_hundreds_of_damaged_rows_are_mended_in_one_pass(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    server.hset(queue.key("jobs"), mapping={f"job-{n}": envelope_of(f"job-{n}") for n in range(700)})
    assert repaired(queue).mended == 700
    assert repaired(queue) == Repaired()
    (told,) = caplog.messages
    assert "jobs without a state, scheduled again: 700." in told


def test_a_group_that_was_lost_is_told_once(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    record_consumer(queue, OURS)
    taken_by(queue, OURS, "one")
    server.xgroup_destroy(STREAM, "delayq")
    assert [repaired(queue).redelivered for _ in range(2)] == [1, 0]
    assert caplog.messages == [
        "queue orders was damaged, and was repaired: consumer group missing or damaged, set to the end of the stream; "
        "jobs without a known worker, ready again (a job that still runs may run twice): 1. Another program changed "
        "its keys, or Redis lost data."
    ]


def test_a_worker_that_creates_a_lost_group_tells_it(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue.schedule("one")
    server.xgroup_destroy(STREAM, "delayq")
    for _ in range(2):
        open_queues(
            queue.executor,
            queue.keys,
            ["orders"],
            Options(),
            consumer="",
            resting=RestingQueues(),
            clock=ServerClock(),
        )
    (told,) = caplog.messages
    assert "queue orders was damaged, and was repaired: consumer group missing or damaged, set" in told


def test_repairs_are_told_with_their_numbers(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    for job_id in ("one", "two", "three"):
        queue.schedule(job_id, "+60000")
    server.hdel(queue.key("jobs"), "one", "two")
    server.zadd(queue.key("failed"), {"three": NOW})
    server.xadd(STREAM, {"x": "1"})
    assert repaired(queue) == Repaired(buried=1, mended=3)
    (told,) = caplog.messages
    assert "stream entries without a job, moved to the failed jobs: 1;" in told
    assert "jobs in several states, reduced to one state: 1;" in told
    assert "jobs with a lost payload, failed (completed ones stay completed): 2." in told


def test_what_was_kept_long_enough_is_forgotten(queue: QueueOnServer, server: redis.Redis) -> None:
    for job_id in ("done", "failed", "fresh"):
        queue.schedule(job_id)
    done, failed, fresh = queue.read()
    queue.ack(done, retention_ms=60 * SECOND, now=NOW)
    queue.fail(failed)
    queue.fail(fresh)
    server.zadd(queue.key("completed"), {"done": 5})
    server.zadd(queue.key("failed"), {"failed": 5, "fresh": 2**52})
    assert repaired(queue).pruned == 2
    assert [queue.place_of(job_id) for job_id in ("done", "failed", "fresh")] == ["nowhere", "nowhere", "failed"]


def test_a_consumer_that_is_at_work_or_foreign_is_not_removed(queue: QueueOnServer, server: redis.Redis) -> None:
    taken_by(queue, PLAIN, "one")
    record_consumer(queue, OURS)
    repaired(queue)
    assert sorted(row["name"] for row in server.xinfo_consumers(STREAM, "delayq")) == [PLAIN, OURS]
