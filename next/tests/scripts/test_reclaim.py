"""reclaim.lua: reserved -> ready, reserved -> failed. test_hold.py has when leases are trusted."""

import pytest

from delayq.backends.values import DeliveryRef, Reclaimed
from delayq.core.failure import Failure
from delayq.redis.calls.delivery import read_pending
from delayq.redis.keys import GROUP
from tests.support.queue import LEASE, NOW, OTHER, OURS, PLAIN, QueueOnServer, envelope_of, large_envelope


def reclaim_all(queue: QueueOnServer, *ids: str, max_recoveries: int = 3) -> Reclaimed:
    """Let the workers of these jobs vanish, and take the jobs back."""
    queue.trust_leases()
    queue.rest(*ids)
    return queue.reclaim(max_recoveries=max_recoveries)


def test_a_job_whose_worker_vanished_joins_the_tail_under_a_new_entry(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.schedule("other")
    queue.cancel("job", running=True)
    assert reclaim_all(queue, "job") == Reclaimed(1, 0, 0, LEASE, 0)
    assert queue.in_stream() == ["other", "job"]
    assert queue.entries()[1] == {
        "id": "job",
        "job": envelope_of("job").decode(),
        "due": str(NOW),
        "recoveries": "1",
        "stop": "1",
    }
    assert (queue.pending(), queue.rows("recoveries")) == ({}, {"job": "1"})
    assert queue.rows("meta")["reclaimed_total"] == "1"
    again = queue.read(OTHER)[1]
    assert (again.entry != job.entry, again.recoveries, again.is_stopping) == (True, 1, True)


def test_a_worker_that_comes_back_changes_nothing_any_more(queue: QueueOnServer) -> None:
    (old,) = queue.reserve("job")
    reclaim_all(queue, "job")
    (new,) = queue.read(OTHER)
    assert queue.server.xack(queue.stream, GROUP, old.entry) == 0
    assert queue.server.xclaim(queue.stream, GROUP, OURS, 0, [old.entry], justid=True) == []
    queue.renew(old)
    with queue.unchanged():
        assert not queue.ack(old)
        assert not queue.release(old, 0)
        assert not queue.fail(old)
        assert not queue.hand_back(old)
        assert queue.recover(old) == [0]
    assert queue.pending() == {new.entry: OTHER}
    assert queue.ack(new)


def test_only_what_no_worker_renewed_for_a_lease_is_taken_back(queue: QueueOnServer) -> None:
    queue.reserve("renewed", "late", "dead")
    queue.trust_leases()
    queue.rest("renewed", "dead")
    queue.rest("late", idle_ms=LEASE - 5000)
    queue.renew(queue.held("renewed"))
    assert queue.reclaim().reclaimed == 1
    assert queue.state_of("dead") == "ready"


def test_a_dead_worker_behind_many_live_ones_is_found_at_once(queue: QueueOnServer) -> None:
    queue.reserve(*(f"live-{number}" for number in range(600)))
    queue.reserve("dead")
    queue.trust_leases()
    queue.rest("dead")
    assert queue.reclaim(limit=5).reclaimed == 1


def test_the_lease_is_that_of_the_queue(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.configure(2000)
    queue.trust_leases()
    queue.rest("job", idle_ms=2000)
    assert queue.reclaim() == Reclaimed(1, 0, 0, 2000, 0)


def test_what_a_plain_consumer_holds_is_taken_back_too(queue: QueueOnServer) -> None:
    queue.reserve("job", consumer=PLAIN)
    assert reclaim_all(queue, "job").reclaimed == 1


def test_reading_again_begins_the_lease_anew(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.rest("job")
    assert [job.id for job in queue.run(read_pending(queue.keys, "orders", OURS))] == ["job"]
    queue.trust_leases()
    assert queue.reclaim().reclaimed == 0


def test_the_fourth_worker_that_vanishes_fails_the_job(queue: QueueOnServer) -> None:
    queue.put("poison", "reserved", lock="digest")
    queue.release(queue.held("poison"), 0, envelope=b"")
    queue.promote()
    for vanished in range(4):
        (job,) = queue.read()
        assert job.recoveries == vanished
        if vanished % 2:
            assert queue.recover(job) == [1 if vanished < 3 else 2]
        else:
            assert reclaim_all(queue, "poison").reclaimed == 1
    assert queue.times("failed") == {"poison": NOW}
    failure = queue.failure_of("poison")
    assert (failure.type, failure.at_ms, failure.history) == ("WorkerVanished", NOW, [Failure("E", "m")])
    assert "vanished 4 times" in failure.message
    assert (queue.rows("recoveries"), queue.rows("unique")) == ({"poison": "4"}, {})
    assert queue.rows("meta")["failed_total"] == "1"


def test_named_rows_come_back_at_once_and_no_others(queue: QueueOnServer) -> None:
    dead, _ = queue.reserve("dead", "live")
    asked = [dead.ref, DeliveryRef("orders", "nobody", "1-1"), dead.ref]
    assert queue.recover(*asked) == [1, 0, 0]
    assert (queue.state_of("dead"), queue.state_of("live")) == ("ready", "reserved")
    assert "reclaim_tick" not in queue.rows("meta")
    (again,) = queue.read()
    assert (again.entry != dead.entry, again.recoveries) == (True, 1)


def test_a_full_page_is_called_for_again(queue: QueueOnServer) -> None:
    ids = [f"job-{number}" for number in range(5)]
    queue.reserve(*ids)
    queue.trust_leases()
    queue.rest(*ids)
    answers = [queue.reclaim(limit=2) for _ in range(4)]
    assert [(answer.reclaimed, answer.more) for answer in answers] == [(2, 1), (2, 1), (1, 0), (0, 0)]
    assert queue.in_stream() == ids


def test_a_call_takes_a_megabyte_but_one_job_at_least(queue: QueueOnServer) -> None:
    for id, size in (("a", 600_000), ("b", 600_000), ("c", 1_500_000)):
        queue.reserve(id, envelope=large_envelope(size))
    assert len(queue.recover(*map(queue.held, "abc"))) == 1
    queue.read()
    answer = reclaim_all(queue, "b", "c", "a")
    assert (answer.reclaimed, answer.more) == (1, 1)
    answers = [queue.reclaim() for _ in range(3)]
    assert [(answer.reclaimed, answer.more) for answer in answers] == [(1, 1), (1, 0), (0, 0)]


def test_the_failures_before_count_towards_the_megabyte(queue: QueueOnServer) -> None:
    queue.reserve("a", "b", "c")
    for id in "abc":
        queue.server.hset(queue.key("errors"), id, '{"type":"E","message":"' + "x" * 700_000 + '"}')
    answer = reclaim_all(queue, "a", "b", "c", max_recoveries=0)
    assert (answer.failed, answer.more) == (1, 1)
    answers = [queue.reclaim(max_recoveries=0) for _ in range(2)]
    assert [(answer.failed, answer.more) for answer in answers] == [(1, 1), (1, 0)]


def test_an_entry_of_no_job_is_only_acknowledged(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.tidy()
    entries = [queue.server.xadd(queue.stream, {"foreign": "x" * 700_000}) for _ in range(3)]
    queue.read()
    queue.trust_leases()
    queue.server.xclaim(queue.stream, GROUP, OURS, 0, entries, idle=LEASE, justid=True)
    answers = [queue.reclaim() for _ in range(3)]
    assert [(answer.reclaimed, answer.more) for answer in answers] == [(0, 1), (0, 1), (0, 0)]
    assert (queue.pending(), len(queue.entries())) == ({}, 3)


def test_a_deleted_entry_is_acknowledged_and_its_job_left_to_mend(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.trust_leases()
    queue.rest("job")
    queue.server.xdel(queue.stream, job.entry)
    assert queue.reclaim().reclaimed == 0
    assert queue.rows("entries") == {"job": job.entry}


@pytest.mark.parametrize("way", ["reclaim", "recover"])
def test_a_lost_payload_comes_back_from_the_entry(queue: QueueOnServer, way: str) -> None:
    (job,) = queue.reserve("job", consumer=PLAIN)
    queue.server.hdel(queue.key("jobs"), "job")
    if way == "reclaim":
        assert reclaim_all(queue, "job").reclaimed == 1
    else:
        assert queue.recover(job) == [1]
    assert queue.rows("jobs") == {"job": envelope_of("job").decode()}


def test_without_a_payload_anywhere_the_entry_stays_pending(damaged_queue: QueueOnServer) -> None:
    """Acknowledged, it would look like work that a plain consumer has done."""
    queue = damaged_queue
    queue.tidy()
    entry = queue.server.xadd(queue.stream, {"id": "job"})
    queue.server.hset(queue.key("entries"), "job", entry)
    queue.read(PLAIN)
    answer = reclaim_all(queue, "job")
    assert (answer.reclaimed, answer.more) == (0, 0)
    assert queue.pending() == {entry: PLAIN}


def test_a_count_of_recoveries_that_is_no_number_begins_anew(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.server.hset(queue.key("recoveries"), "job", "many")
    assert reclaim_all(queue, "job").reclaimed == 1
    assert queue.rows("recoveries") == {"job": "1"}


def test_without_a_group_nothing_is_taken_back(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.trust_leases()
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert queue.reclaim() == Reclaimed(0, 0, 0, LEASE, 0)


def test_without_a_stream_nothing_is_written(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.server.delete(queue.stream)
    with queue.unchanged():
        assert queue.reclaim() == Reclaimed(0, 0, 0, LEASE, 0)
        assert queue.recover(job) == [0]
