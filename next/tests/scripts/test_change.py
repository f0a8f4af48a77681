"""reschedule.lua, run_now.lua, retry.lua, forget.lua. test_table.py has their answers, test_times.py their times."""

import pytest

from delayq.core.states import State
from delayq.redis.keys import GROUP
from tests.support.queue import FAILURE, HOUR, NOW, QueueOnServer, envelope_of, new_job

# --- reschedule


def test_a_rescheduled_job_waits_for_its_new_time(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    queue.schedule("other", "+9000")
    assert queue.reschedule("job", "+7000").due_ms == NOW + 7000
    assert queue.reschedule("other", str(NOW + 77)).due_ms == NOW + 77
    assert queue.times("scheduled") == {"other": NOW + 77, "job": NOW + 7000}


def test_a_ready_job_goes_back_to_the_set(queue: QueueOnServer) -> None:
    queue.schedule_all(new_job("job"), new_job("other"))
    queue.reschedule("job", "+5000")
    assert queue.times("scheduled") == {"job": NOW + 5000}
    assert [job.id for job in queue.read()] == ["other"]


def test_a_new_due_time_withdraws_a_wish_to_stop(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.cancel("job", running=True)
    queue.hand_back(job)
    queue.reschedule("job", "+5000")
    assert queue.rows("cancel") == {}


def test_a_rescheduled_retry_keeps_its_failures(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.hset(queue.key("recoveries"), "job", 1)
    queue.release(job, 5000)
    queue.reschedule("job", "+9000")
    assert (queue.rows("recoveries"), queue.rows("errors")) == ({"job": "1"}, {"job": FAILURE.decode()})


@pytest.mark.parametrize("state", ["reserved", "failed", "completed", "absent"])
def test_a_refusal_has_no_due_time(queue: QueueOnServer, state: State) -> None:
    queue.put("job", state)
    assert queue.reschedule("job", "+5000").due_ms is queue.run_now("job").due_ms is None


# --- run_now


def test_a_job_that_is_to_run_now_goes_straight_into_the_stream(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    queue.server.hset(queue.key("recoveries"), "job", 2)
    moved = queue.run_now("job")
    assert (moved.answer, moved.due_ms) == ("ready", NOW)
    assert queue.entries() == [{"id": "job", "job": envelope_of("job").decode(), "due": str(NOW), "recoveries": "2"}]


def test_an_overdue_job_keeps_the_time_since_which_it_is_late(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5")
    assert queue.run_now("job", now=NOW + HOUR).due_ms == NOW + 5
    assert queue.entries()[0]["due"] == str(NOW + 5)


def test_on_a_paused_queue_it_is_due_now_and_waits(queue: QueueOnServer) -> None:
    queue.pause()
    queue.schedule("overdue", "+5")
    queue.schedule("job", f"+{2 * HOUR}")
    for id in ("overdue", "job"):
        moved = queue.run_now(id, now=NOW + HOUR)
        assert (moved.answer, moved.due_ms) == ("scheduled", NOW + HOUR)
    assert queue.times("scheduled") == {"job": NOW + HOUR, "overdue": NOW + HOUR}


def test_a_full_stream_lets_it_wait_too(queue: QueueOnServer) -> None:
    queue.schedule("first")
    queue.schedule("job", "+5000")
    assert queue.run_now("job", high_water=1).answer == "scheduled"


def test_it_makes_no_stream(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    queue.server.delete(queue.stream)
    assert queue.run_now("job").answer == "scheduled"
    assert not queue.server.exists(queue.stream)


def test_a_lost_payload_is_left_for_the_mover_to_find(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    queue.server.hdel(queue.key("jobs"), "job")
    assert queue.run_now("job").answer == "scheduled"
    assert queue.promote().lost == 1


def test_a_stream_without_its_group_takes_a_job_too(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert [queue.run_now("job").answer for _ in range(2)] == ["ready", "running"]


# --- retry


def test_a_retried_job_waits_due_now_with_all_its_tries(queue: QueueOnServer) -> None:
    queue.put("job", "failed")
    queue.put("other", "failed")
    queue.server.hset(queue.key("recoveries"), mapping={"job": 4, "other": 1})
    queue.server.hset(queue.key("jobs"), "job", "attempts: 5")
    retried = queue.retry("job")
    assert (retried.answer, retried.due_ms) == ("scheduled", NOW)
    assert (queue.times("scheduled"), queue.times("failed")) == ({"job": NOW}, {"other": NOW})
    assert queue.rows("jobs")["job"] == envelope_of("job").decode()
    assert queue.rows("recoveries") == {"other": "1"}


def test_the_failure_stays_until_the_job_succeeds(queue: QueueOnServer) -> None:
    queue.put("job", "failed")
    queue.retry("job")
    assert list(queue.rows("errors")) == ["job"]
    queue.promote()
    queue.ack(queue.read()[0])
    assert queue.rows("errors") == {}


def test_an_envelope_that_changed_or_was_lost_is_not_overwritten(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.put("job", "failed")
    read = envelope_of("job")
    queue.server.hset(queue.key("jobs"), "job", "another")
    with queue.unchanged():
        assert queue.retry("job", read=read).answer == "changed"
    queue.server.hdel(queue.key("jobs"), "job")
    with queue.unchanged():
        assert queue.retry("job", read=read).answer == "changed"


def test_on_a_paused_queue_a_retried_job_waits_like_any_other(queue: QueueOnServer) -> None:
    queue.put("job", "failed")
    queue.pause()
    assert queue.retry("job").answer == "scheduled"
    assert queue.promote().wait_us == -3


# --- forget


def test_a_forgotten_job_leaves_nothing(queue: QueueOnServer) -> None:
    queue.put("failed", "failed")
    queue.put("completed", "completed")
    queue.server.hset(queue.key("recoveries"), "failed", 4)
    assert queue.forget("failed", "completed", "failed") == ["forgotten", "forgotten", "unknown"]
    assert set(queue.server.keys()) == {queue.stream, queue.key("meta")}


def test_no_ids_are_no_change(queue: QueueOnServer) -> None:
    queue.put("job", "failed")
    with queue.unchanged():
        assert queue.forget() == []


def test_a_job_that_damage_put_among_the_failed_too_is_not_forgotten(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.put("job", "reserved")
    queue.server.zadd(queue.key("failed"), {"job": 1})
    with queue.unchanged():
        assert queue.forget("job") == ["refused"]
