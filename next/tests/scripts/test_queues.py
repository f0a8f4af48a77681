"""pause.lua, control.lua, clear.lua, queue_configure.lua, queue_remove.lua: what operators do with queues."""

import msgspec
import pytest

from delayq.core.errors import BackendError
from delayq.core.states import STATES
from delayq.core.views import Control
from delayq.redis.calls import queues
from delayq.redis.calls.queues import END, UNTIL_ENDED, Holds
from delayq.redis.keys import GROUP
from tests.support.dump import dump
from tests.support.queue import HOUR, LEASE, NOW, SECOND, QueueOnServer, envelope_of, large_envelope, new_job

# --- pause


def test_a_pause_is_for_a_time_or_until_the_queue_is_resumed(queue: QueueOnServer) -> None:
    assert queue.pause(5 * SECOND) == NOW + 5 * SECOND
    meta = {"paused_until_ms": str(NOW + 5 * SECOND), "schema": "1", "lease_ms": str(LEASE)}
    assert queue.rows("meta") == meta
    assert queue.pause() == 0
    assert queue.rows("meta")["paused_until_ms"] == "0"
    assert queue.resume() == -1
    assert "paused_until_ms" not in queue.rows("meta")
    with queue.unchanged():
        assert queue.resume() == -1


def test_a_pause_leaves_the_lease_as_it_is(queue: QueueOnServer) -> None:
    queue.configure(5000)
    queue.pause()
    assert queue.rows("meta")["lease_ms"] == "5000"


def test_a_full_server_can_be_paused_and_resumed(queue: QueueOnServer) -> None:
    with queue.full():
        queue.pause()
        assert queue.stats().paused
        queue.resume()
        assert not queue.stats().paused
        assert queue.control("maintenance", reason="full").maintenance_until_ms == 0


# --- control


def test_nothing_is_in_force_at_first(queue: QueueOnServer) -> None:
    with queue.unchanged():
        assert queue.control() == Control(NOW)


def test_a_pause_of_everything_ends_by_time_or_by_order(queue: QueueOnServer) -> None:
    paused = queue.control("pause", 5 * SECOND, "upgrade")
    assert paused == Control(NOW, paused_until_ms=NOW + 5 * SECOND, paused_reason="upgrade")
    assert queue.control(now=NOW + 5 * SECOND - 1).paused_until_ms is not None
    assert queue.control(now=NOW + 5 * SECOND) == Control(NOW + 5 * SECOND)
    assert queue.control("pause", UNTIL_ENDED).paused_until_ms == 0
    assert queue.control(now=NOW + 1000 * HOUR).paused_until_ms == 0
    assert queue.control("pause", END) == Control(NOW)
    assert queue.server.keys() == []


def test_maintenance_keeps_the_time_of_its_start(queue: QueueOnServer) -> None:
    assert queue.control("maintenance", UNTIL_ENDED, "größer") == Control(NOW, None, 0, NOW, None, "größer")
    longer = queue.control("maintenance", 500, "still", now=NOW + 10)
    assert longer == Control(NOW + 10, None, NOW + 510, NOW, None, "still")
    assert queue.control(now=NOW + 600) == Control(NOW + 600)
    assert queue.control("maintenance", 500, now=NOW + 600).maintenance_since_ms == NOW + 600
    assert queue.control("maintenance", END) == Control(NOW)


def test_a_pause_and_maintenance_do_not_touch_each_other(queue: QueueOnServer) -> None:
    queue.control("maintenance", UNTIL_ENDED, "why")
    queue.control("pause", 100)
    after = queue.control("pause", END)
    assert (after.paused_until_ms, after.maintenance_until_ms, after.reason) == (None, 0, "why")


def test_the_time_of_a_restart_only_grows(queue: QueueOnServer) -> None:
    restarts = [queue.control("restart", now=NOW + after).restart_ms for after in (0, 7, 7, -HOUR)]
    assert restarts == [NOW, NOW + 7, NOW + 7, NOW + 8]
    assert queue.control().restart_ms == NOW + 8


# --- channels


def test_a_channel_that_may_not_be_used_stops_no_resume(queue: QueueOnServer) -> None:
    queue.pause()
    queue.server.acl_setuser("narrow", enabled=True, nopass=True, commands=["+@all"], keys=["*"], reset_channels=True)
    call = queues.pause(queue.keys, "orders", for_ms=END, lease_ms=LEASE)
    with queue.server.client() as narrow:
        narrow.execute_command("AUTH", "narrow", "")
        assert narrow.execute_command(*call.words_with_text()) == -1
        narrow.connection.disconnect()
    queue.server.acl_deluser("narrow")
    assert not queue.stats().paused


# --- clear


def test_clear_drops_what_waits_and_leaves_the_rest(queue: QueueOnServer) -> None:
    for state in ("failed", "completed", "reserved", "ready", "scheduled"):
        queue.put(state, state, lock=f"digest-{state}")
    queue.server.hset(queue.key("recoveries"), mapping={"reserved": 1, "scheduled": 1})
    queue.server.hset(queue.key("errors"), "scheduled", "{}")
    queue.server.hset(queue.key("cancel"), "ready", NOW)
    assert queue.clear() == 2
    states = [queue.state_of(state) for state in STATES[1:]]
    assert states == ["absent", "absent", "reserved", "failed", "completed"]
    assert queue.rows("locks") == {"reserved": "digest-reserved"}
    with queue.unchanged():
        assert queue.clear() == 0


def test_clear_goes_on_call_by_call(queue: QueueOnServer) -> None:
    queue.schedule_all(*(new_job(f"ready-{number}") for number in range(40)))
    queue.schedule_all(*(new_job(f"scheduled-{number}", "+5000") for number in range(3)))
    assert [queue.clear(limit=20) for _ in range(4)] == [20, 20, 3, 0]
    assert set(queue.server.keys()) == {queue.stream, queue.key("meta")}


def test_clear_drops_a_megabyte_but_one_job_at_least(queue: QueueOnServer) -> None:
    for when in ("+0", "+5000"):
        queue.schedule_all(*(new_job(f"{when}-{n}", when, envelope=large_envelope(600_000)) for n in range(2)))
    dropped = [queue.clear() for _ in range(4)]
    assert (sum(dropped), dropped[-1]) == (4, 0)
    assert all(count <= 2 for count in dropped)


def test_clear_passes_entries_of_no_job_by(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.tidy()
    for number in range(40):
        queue.server.xadd(queue.stream, {"foreign": number})
    queue.server.xadd(queue.stream, {"id": "job", "job": "copy"})
    queue.schedule("job")
    assert [queue.clear(), queue.clear()] == [1, 0]
    assert len(queue.entries()) == 41


@pytest.mark.parametrize("is_set_back", [False, True])
def test_clear_leaves_alone_what_may_be_running(queue: QueueOnServer, is_set_back: bool) -> None:
    queue.reserve("job")
    queue.tidy()
    queue.server.xgroup_destroy(queue.stream, GROUP)
    if is_set_back:
        queue.server.xgroup_create(queue.stream, GROUP, "0")
    with queue.unchanged():
        assert queue.clear() == 0


def test_clear_leaves_a_running_job_that_damage_put_among_what_waits(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.server.zadd(queue.key("scheduled"), {"job": NOW})
    assert queue.clear() == 1
    assert queue.rows("entries") == {"job": job.entry}
    assert list(queue.pending()) == [job.entry]


# --- queue_configure


def test_the_lease_is_set_and_stays(queue: QueueOnServer) -> None:
    assert queue.configure().lease_ms == LEASE
    assert queue.configure(5000).lease_ms == 5000
    with queue.unchanged():
        assert queue.configure().lease_ms == 5000
    assert queue.tidy(lease_ms=9000).lease_ms == 5000


def test_the_number_of_shards_changes_only_while_no_job_is_here(queue: QueueOnServer) -> None:
    assert queue.configure(shards=3).shards == 3
    queue.configure(shards=1)
    queue.schedule("job", "+5000")
    with queue.unchanged():
        refused = queue.configure(5000, shards=2)
    assert (refused.shards, refused.jobs) == (1, 1)
    assert queue.configure(5000, shards=1).lease_ms == 5000
    queue.cancel("job")
    assert queue.configure(shards=2).shards == 2


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_lease_and_a_number_of_shards_are_above_0(queue: QueueOnServer, wrong: int) -> None:
    with queue.unchanged():
        with pytest.raises(BackendError, match="lease_ms must be a whole number above 0"):
            queue.configure(wrong)
        with pytest.raises(BackendError, match="shards must be a whole number above 0"):
            queue.configure(shards=wrong)


# --- queue_remove


def test_a_queue_that_holds_nothing_is_removed_without_a_trace(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.ack(job)
    queue.record_activity()
    queue.schedule("windowed", "+5", lock="digest.60000")
    queue.cancel("windowed")
    with queue.unchanged():
        assert queue.remove(look=True) == Holds(0, 0, 0, 0, 0, 0)
    queue.remove()
    assert dump(queue.server) == {}


def test_a_queue_that_holds_anything_stays(queue: QueueOnServer) -> None:
    for state in ("failed", "completed", "reserved", "ready", "scheduled"):
        queue.put(state, state)
    queue.schedule("linked", "+5", envelope=envelope_of("linked", extra=',"chain":[1]'))
    queue.cancel("linked")
    with queue.unchanged():
        assert queue.remove() == Holds(1, 2, 1, 1, 0, 1)


@pytest.mark.parametrize("kind", ["payload", "entry"])
def test_a_queue_with_rows_of_no_job_stays(damaged_queue: QueueOnServer, kind: str) -> None:
    queue = damaged_queue
    if kind == "payload":
        queue.server.hset(queue.key("jobs"), "job", "{}")
    else:
        queue.server.xadd(queue.stream, {"foreign": "entry"})
    with queue.unchanged():
        assert sum(msgspec.structs.astuple(queue.remove())) == 1
