"""promote.lua: scheduled -> ready, scheduled -> failed."""

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.failure import Failure
from tests.support.queue import HOUR, NOW, SECOND, QueueOnServer, envelope_of, new_job


def test_due_jobs_become_ready_oldest_first(queue: QueueOnServer) -> None:
    queue.schedule("second", "+2000")
    queue.schedule("first", "+1000")
    queue.schedule("third", "+3000")
    answer = queue.promote(now=NOW + 2000)
    assert (answer.promoted, answer.lost, answer.wait_us) == (2, 0, 1_000_000)
    assert [delivery.id for delivery in queue.read()] == ["first", "second"]
    assert queue.entries()[0] == {
        "id": "first",
        "job": envelope_of("first").decode(),
        "due": str(NOW + 1000),
        "recoveries": "0",
    }
    assert (queue.rows("meta")["promoted_total"], queue.rows("meta")["mover_tick"]) == ("2", str(NOW + 2000))


def test_no_job_is_promoted_a_millisecond_early(queue: QueueOnServer) -> None:
    queue.schedule("job", "+10")
    answer = queue.promote(now=NOW + 9)
    assert (answer.promoted, answer.wait_us) == (0, 1000)


def test_nothing_waits(queue: QueueOnServer) -> None:
    assert queue.promote().wait_us == -1


def test_a_far_head_is_told_exactly(queue: QueueOnServer) -> None:
    queue.schedule("job", f"+{HOUR}")
    assert queue.promote().wait_us == HOUR * 1000


def test_more_than_the_limit_is_called_for_again(queue: QueueOnServer) -> None:
    queue.schedule_all(*(new_job(f"job-{number}", "+1000") for number in range(3)))
    answers = [queue.promote(now=NOW + SECOND, limit=2) for _ in range(2)]
    assert [(answer.promoted, answer.wait_us) for answer in answers] == [(2, 0), (1, -1)]


def test_the_stream_is_filled_up_to_its_high_water_mark(queue: QueueOnServer) -> None:
    queue.schedule_all(*(new_job(id, "+1") for id in "abc"))
    answers = [queue.promote(now=NOW + 1, high_water=2) for _ in range(2)]
    assert [(answer.promoted, answer.wait_us) for answer in answers] == [(2, 0), (0, -2)]
    assert queue.promote(now=NOW + 1, high_water=1).wait_us == -2
    queue.ack(queue.read()[0])
    assert queue.promote(now=NOW + 1, high_water=2).promoted == 1


def test_a_paused_queue_rests_and_its_mover_is_seen_all_the_same(queue: QueueOnServer) -> None:
    queue.schedule("job", "+1")
    queue.pause(5 * SECOND)
    answer = queue.promote(now=NOW + SECOND)
    assert (answer.promoted, answer.wait_us) == (0, 4 * SECOND * 1000)
    assert queue.rows("meta")["mover_tick"] == str(NOW + SECOND)
    assert queue.promote(now=NOW + 5 * SECOND).promoted == 1


def test_the_entry_says_how_often_the_worker_vanished(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.release(job, 0)
    queue.server.hset(queue.key("recoveries"), "job", 2)
    queue.promote()
    assert queue.read()[0].recoveries == 2


def test_a_job_whose_payload_is_lost_fails(queue: QueueOnServer) -> None:
    queue.put("lost", "reserved", lock="digest")
    queue.release(queue.held("lost"), 0)
    queue.schedule("job", "+1")
    queue.server.hdel(queue.key("jobs"), "lost")
    answer = queue.promote(now=NOW + 1)
    assert (answer.promoted, answer.lost) == (1, 1)
    assert queue.times("failed") == {"lost": NOW + 1}
    failure = queue.failure_of("lost")
    assert (failure.type, failure.at_ms, failure.history) == ("PayloadLost", NOW + 1, [Failure("E", "m")])
    assert (queue.rows("unique"), queue.rows("meta")["failed_total"]) == ({}, "1")


def test_the_stub_of_a_lost_payload_is_json_whatever_the_id(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.server.zadd(queue.key("scheduled"), {'a"\\b': 1})
    assert queue.promote().lost == 1
    stub = envelopes.decode(queue.server.hget(queue.key("jobs"), 'a"\\b').encode())
    assert (stub.id, stub.name, stub.queue, msgspec.json.decode(stub.data)) == ('a"\\b', "delayq.lost", "orders", None)


def test_a_job_that_damage_put_into_the_set_too_gets_no_second_entry(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.zadd(queue.key("scheduled"), {"job": 1})
    assert queue.promote().promoted == 0
    assert queue.rows("entries") == {"job": job.entry}
