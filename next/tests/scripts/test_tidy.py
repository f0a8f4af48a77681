"""tidy.lua: the stream, the group and the meta of a queue, and the two sums."""

import pytest

from delayq.redis.keys import GROUP
from tests.support.queue import LEASE, QueueOnServer, new_job
from tests.support.stored import parts


def verdicts(queue: QueueOnServer) -> dict[str, str]:
    return {row.id: row.verdict for row in queue.outside_acks().found}


def test_an_empty_queue_gets_a_stream_that_can_be_waited_for(queue: QueueOnServer) -> None:
    assert queue.tidy().is_new
    assert queue.last_delivered() == "0-0"
    assert queue.rows("meta") == {"schema": "1", "lease_ms": str(LEASE), "delivered": "0-0"}
    with queue.unchanged():
        tidied = queue.tidy()
    assert (tidied.is_new, tidied.regrouped, tidied.counted, tidied.is_damaged) == (0, 0, 0, False)


def test_the_sum_of_the_counters_changes_only_when_something_happened(queue: QueueOnServer) -> None:
    queue.schedule_all(new_job("a", "+5"), new_job("b", "+5"))
    assert queue.tidy().counted == 2
    queue.cancel("a")
    assert [queue.tidy().counted for _ in range(2)] == [3, 3]


def test_everything_is_counted(queue: QueueOnServer) -> None:
    queue.put("failed", "failed")
    queue.put("completed", "completed")
    queue.put("reserved", "reserved", lock="digest")
    queue.schedule_all(*map(new_job, "ab"))
    queue.schedule_all(*(new_job(id, "+5") for id in "cde"))
    tidied = queue.tidy()
    assert (tidied.in_stream, tidied.entries, tidied.scheduled, tidied.failed, tidied.completed) == (3, 3, 3, 1, 1)
    assert (tidied.jobs, tidied.unique, tidied.locks, tidied.is_damaged) == (8, 1, 1, False)


@pytest.mark.parametrize("lease", ["-5", "0", "abc", "", "9" * 16])
def test_a_lease_that_is_none_becomes_the_default(queue: QueueOnServer, lease: str) -> None:
    queue.tidy()
    queue.server.hset(queue.key("meta"), "lease_ms", lease)
    assert queue.tidy().lease_ms == LEASE
    queue.server.hset(queue.key("meta"), "lease_ms", "250")
    assert queue.tidy().lease_ms == 250


@pytest.mark.parametrize(
    ("role", "id"),
    [
        ("jobs", "scheduled"),
        ("jobs", "ready"),
        ("scheduled", "scheduled"),
        ("failed", "failed"),
        ("completed", "completed"),
        ("entries", "ready"),
        ("stream", "ready"),
    ],
)
def test_the_sums_show_what_was_removed(damaged_queue: QueueOnServer, role: str, id: str) -> None:
    queue = damaged_queue
    for state in ("failed", "completed", "ready", "scheduled"):
        queue.put(state, state)
    assert not queue.tidy().is_damaged
    if role == "stream":
        queue.server.xdel(queue.stream, queue.held(id).entry)
    elif role in ("jobs", "entries"):
        queue.server.hdel(queue.key(role), id)
    else:
        queue.server.zrem(queue.key(role), id)
    assert queue.tidy().is_damaged


def test_the_sums_show_an_entry_of_other_hands(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.tidy()
    queue.server.xadd(queue.stream, {"foreign": "entry"})
    assert queue.tidy().is_damaged


def test_the_highest_delivered_entry_is_remembered(queue: QueueOnServer) -> None:
    _, last = queue.reserve("a", "b")
    queue.tidy()
    assert queue.rows("meta")["delivered"] == last.entry
    queue.server.delete(queue.key("meta"))
    assert queue.tidy(lease_ms=7000).lease_ms == 7000
    assert queue.rows("meta")["delivered"] == last.entry


@pytest.mark.parametrize("was_tidied", [False, True])
def test_a_lost_group_is_made_at_the_end_and_every_job_delivered_anew(queue: QueueOnServer, was_tidied: bool) -> None:
    queue.reserve("a", "b")
    queue.schedule("c")
    last = queue.held("c").entry
    if was_tidied:
        queue.tidy()
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert queue.tidy().regrouped
    assert (queue.last_delivered(), queue.rows("meta")["anew"], queue.rows("meta")["delivered"]) == (last, last, last)
    assert queue.read() == []
    assert verdicts(queue) == dict.fromkeys("abc", "again")
    assert not queue.tidy().regrouped


def test_a_group_that_was_set_back_delivers_no_old_entry_again(queue: QueueOnServer) -> None:
    queue.reserve("a", "b")
    queue.tidy()
    queue.server.xgroup_destroy(queue.stream, GROUP)
    queue.server.xgroup_create(queue.stream, GROUP, "0")
    queue.read(limit=1)
    assert queue.tidy().regrouped
    assert queue.read() == []
    assert verdicts(queue) == {"b": "again"}


def test_a_group_that_was_moved_ahead_delivers_what_it_skipped(queue: QueueOnServer) -> None:
    queue.schedule_all(*map(new_job, "ab"))
    queue.tidy()
    queue.server.xgroup_setid(queue.stream, GROUP, "$")
    assert not queue.tidy().regrouped
    assert verdicts(queue) == {"a": "again", "b": "again"}


@pytest.mark.parametrize("was_tidied", [False, True])
def test_a_lost_stream_begins_beyond_every_old_entry(damaged_queue: QueueOnServer, was_tidied: bool) -> None:
    queue = damaged_queue
    (old,) = queue.reserve("job")
    if was_tidied:
        queue.tidy()
    queue.server.delete(queue.stream)
    tidied = queue.tidy()
    assert (tidied.in_stream, tidied.entries, tidied.is_damaged) == (0, 1, True)
    assert queue.cancel("job") == "running"
    queue.mend("job")
    assert parts(queue.read()[0].entry) > parts(old.entry)
    queue.check_whole()


@pytest.mark.parametrize("has_group", [False, True])
def test_a_stream_of_other_hands_is_lifted_beyond_the_old_one(damaged_queue: QueueOnServer, has_group: bool) -> None:
    queue = damaged_queue
    (old,) = queue.reserve("job")
    queue.tidy()
    queue.server.delete(queue.stream)
    queue.server.xadd(queue.stream, {"foreign": "entry"}, id="1-1")
    if has_group:
        queue.server.xgroup_create(queue.stream, GROUP, "0")
    assert queue.tidy().regrouped
    queue.mend("job")
    (new,) = queue.read()
    assert parts(new.entry) > parts(old.entry)
    assert queue.cancel("job") == "running"


@pytest.mark.parametrize("maker", ["schedule", "promote", "tidy"])
def test_entry_ids_of_a_lost_stream_go_on_from_the_highest_one(queue: QueueOnServer, maker: str) -> None:
    """Also when another program set them to the year 5138."""
    queue.tidy()
    queue.server.execute_command("XSETID", queue.stream, "99999999999999-7")
    (old,) = queue.reserve("old")
    queue.tidy()
    queue.ack(old)
    if maker == "promote":
        queue.schedule("new", "+5000")
    queue.server.delete(queue.stream)
    if maker == "promote":
        queue.promote(now=queue.stats().now_ms + 5000)
    elif maker == "tidy":
        queue.tidy()
        queue.schedule("new")
    else:
        queue.schedule("new")
    (new,) = queue.read()
    assert parts(new.entry) > parts(old.entry)
    assert queue.ack(new)
