"""What the janitor makes of damage: repair_queue, which calls tidy, outside_acks, bury, mend and prune."""

from collections.abc import Callable

import pytest

from delayq.backends.values import Repaired
from delayq.core.options import Options
from delayq.core.states import State
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import GROUP
from delayq.redis.repair import repair_queue
from tests.support.dump import dump
from tests.support.queue import OURS, PLAIN, QueueOnServer, envelope_of

STATES: dict[str, State] = {
    "scheduled": "scheduled",
    "ready": "ready",
    "ours": "reserved",
    "plain": "reserved",
    "failed": "failed",
    "completed": "completed",
}
IN_STREAM = ("ready", "ours", "plain")
READY_AGAIN = dict.fromkeys(IN_STREAM, "ready")


@pytest.fixture
def filled(queue: QueueOnServer) -> QueueOnServer:
    """A queue with a job in every place, and two that run: one at a worker of delayq, one at a plain consumer."""
    queue.put("completed", "completed")
    queue.put("failed", "failed")
    for id, consumer in (("plain", PLAIN), ("ours", OURS)):
        queue.schedule(id, lock=f"digest-{id}")
        queue.read(consumer)
    queue.renew(queue.held("ours"))
    queue.report_progress(("ours", queue.held("ours").entry, b'{"done":1'))
    queue.put("ready", "ready", lock="digest-ready")
    queue.put("scheduled", "scheduled", lock="digest-scheduled")
    queue.tidy()
    return queue


def look(queue: QueueOnServer) -> Repaired:
    return drive(repair_queue(queue.executor, queue.keys, "orders", Options()))


def repair(queue: QueueOnServer) -> Repaired:
    """Let the janitor look until it finds nothing to do, and return what it did at first."""
    first = look(queue)
    for _ in range(4):
        before = dump(queue.server)
        if look(queue) == Repaired() and dump(queue.server) == before:
            break
    else:
        pytest.fail("the janitor never finds the queue in order")
    queue.check_whole()
    return first


def states(queue: QueueOnServer) -> dict[str, State]:
    return {id: queue.state_of(id) for id in STATES}


def test_a_queue_in_order_is_left_alone(filled: QueueOnServer) -> None:
    assert repair(filled) == Repaired()
    assert states(filled) == STATES


@pytest.mark.parametrize(
    ("role", "moved"),
    [
        ("scheduled", {}),
        ("jobs", {"scheduled": "failed"}),
        ("stream", READY_AGAIN),
        ("entries", {}),
        ("failed", {"failed": "scheduled"}),
        ("completed", {"completed": "absent"}),  # its retention is lost: it is kept as done, and pruned
        ("errors", {}),
        ("results", {}),
        ("recoveries", {}),
        ("cancel", {}),
        ("progress", {}),
        ("meta", {}),
    ],
)
def test_a_lost_key_loses_no_job(filled: QueueOnServer, role: str, moved: dict[str, State]) -> None:
    pending = filled.pending()
    filled.server.delete(filled.key(role))
    repair(filled)
    assert states(filled) == STATES | moved
    if role != "stream":
        assert filled.pending() == pending


def test_a_lost_hash_of_unique_keys_is_written_anew(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.put("owner", "scheduled", lock="digest")
    queue.server.delete(queue.key("unique"))
    look(queue)
    assert queue.rows("unique") == {"digest": "owner"}


def test_a_lost_hash_of_locks_keeps_no_key_taken_for_longer_than_its_owner_lives(
    damaged_queue: QueueOnServer,
) -> None:
    queue = damaged_queue
    queue.put("owner", "reserved", lock="digest")
    queue.server.delete(queue.key("locks"))
    look(queue)
    assert queue.schedule("second", "+5000", lock="digest").answer == "kept"
    queue.ack(queue.held("owner"))
    assert queue.schedule("second", "+5000", lock="digest").answer == "created"


Damage = Callable[[QueueOnServer], object]


def _regroup(at: str) -> Damage:
    def damage(queue: QueueOnServer) -> None:
        queue.server.xgroup_destroy(queue.stream, GROUP)
        queue.server.xgroup_create(queue.stream, GROUP, at)

    return damage


def _delete_stream_and(then: Damage) -> Damage:
    def damage(queue: QueueOnServer) -> None:
        queue.server.delete(queue.stream)
        then(queue)

    return damage


STREAM_DAMAGE: dict[str, Damage] = {
    "trimmed": lambda queue: queue.server.xtrim(queue.stream, maxlen=0, approximate=False),
    "deleted, then a new job": _delete_stream_and(lambda queue: queue.schedule("new")),
    "deleted, then an XADD": _delete_stream_and(lambda queue: queue.server.xadd(queue.stream, {"foreign": "x"})),
    "group destroyed": lambda queue: queue.server.xgroup_destroy(queue.stream, GROUP),
    "group made anew at the start": _regroup("0"),
    "group made anew at the end": _regroup("$"),
}


@pytest.mark.parametrize("damage", STREAM_DAMAGE)
def test_after_damage_to_the_stream_its_jobs_are_delivered_under_new_entries(
    filled: QueueOnServer, damage: str
) -> None:
    old = {id: filled.held(id) for id in IN_STREAM}
    STREAM_DAMAGE[damage](filled)
    repair(filled)
    assert states(filled) == STATES | READY_AGAIN
    assert not {held.entry for held in old.values()} & set(filled.rows("entries").values())
    assert not filled.ack(old["ours"])
    assert {job.id for job in filled.read()} >= set(IN_STREAM)


@pytest.mark.parametrize("id", IN_STREAM)
@pytest.mark.parametrize("part", ["entry", "row", "payload"])
def test_a_job_in_the_stream_survives_the_loss_of_a_part(filled: QueueOnServer, id: str, part: str) -> None:
    held, payload = filled.held(id), filled.rows("jobs")[id]
    if part == "entry":
        filled.server.xdel(filled.stream, held.entry)
    else:
        filled.server.hdel(filled.key("entries" if part == "row" else "jobs"), id)
    repair(filled)
    assert states(filled) == STATES | ({id: "ready"} if part == "entry" else {})
    assert (filled.held(id) == held) == (part != "entry")
    assert filled.rows("jobs")[id] == payload


@pytest.mark.parametrize(("id", "after"), [("scheduled", "failed"), ("failed", "failed"), ("completed", "completed")])
def test_the_lost_payload_of_a_job_in_a_set_is_shown_as_lost(filled: QueueOnServer, id: str, after: State) -> None:
    filled.server.hdel(filled.key("jobs"), id)
    repair(filled)
    assert states(filled) == STATES | {id: after}
    assert "delayq.lost" in filled.rows("jobs")[id]


@pytest.mark.parametrize(
    ("id", "after"), [("scheduled", "scheduled"), ("failed", "scheduled"), ("completed", "absent")]
)
def test_a_lost_place_is_found_again(filled: QueueOnServer, id: str, after: State) -> None:
    filled.server.zrem(filled.key(id), id)
    assert repair(filled).mended == 1
    assert states(filled) == STATES | {id: after}


@pytest.mark.parametrize("extra", ["scheduled", "failed", "completed"])
def test_a_job_keeps_one_of_two_places(filled: QueueOnServer, extra: State) -> None:
    """The one nearest to a worker."""
    sets: list[State] = ["scheduled", "failed", "completed"]
    for id in STATES:
        if id != extra:
            filled.server.zadd(filled.key(extra), {id: 9 * 10**12})
    repair(filled)
    nearer = {id: extra for id in sets[sets.index(extra) + 1 :]}
    assert states(filled) == STATES | nearer


@pytest.mark.parametrize("reader", [OURS, PLAIN, ""])
@pytest.mark.parametrize(
    "fields", [{b"\xff\x00": b"\xfe"}, {"job": "{}"}, {"id": "unknown", "job": "{}"}, {"id": "", "job": ""}]
)
def test_an_entry_of_other_hands_is_kept_with_the_failed(
    filled: QueueOnServer, fields: dict[str, str], reader: str
) -> None:
    filled.server.xadd(filled.stream, fields)
    if reader:
        filled.read(reader)
    assert repair(filled).buried == 1
    assert states(filled) == STATES | ({"ready": "reserved"} if reader else {})
    assert len(filled.times("failed")) == 2


def test_a_copy_of_a_job_is_dropped(filled: QueueOnServer) -> None:
    for id in STATES:
        filled.server.xadd(filled.stream, {"id": id, "job": "copy"})
    assert repair(filled).buried == len(STATES)
    assert states(filled) == STATES


def test_a_row_of_entries_that_is_no_id_is_replaced_when_its_worker_has_gone(filled: QueueOnServer) -> None:
    held = filled.held("ours")
    filled.rest("ours")
    filled.trust_leases()
    filled.server.hset(filled.key("entries"), "ours", "junk")
    assert not filled.ack(held)
    filled.reclaim()
    repair(filled)
    assert states(filled) == STATES | {"ours": "ready"}


def xack(queue: QueueOnServer, id: str) -> None:
    assert queue.server.xack(queue.stream, GROUP, queue.held(id).entry) == 1


def test_a_plain_acknowledgement_closes_the_job(filled: QueueOnServer) -> None:
    xack(filled, "plain")
    assert repair(filled).closed == 1
    assert states(filled) == STATES | {"plain": "absent"}
    assert "plain" not in filled.rows("locks")


def test_it_does_where_there_is_no_worker_of_delayq_at_all(queue: QueueOnServer) -> None:
    jobs = queue.reserve(*(f"job-{number}" for number in range(30)), consumer=PLAIN)
    for job in jobs[:20]:
        xack(queue, job.id)
    assert repair(queue).closed == 20
    assert len(queue.pending()) == len(queue.entries()) == 10


def test_it_keeps_the_job_for_the_retention_in_its_envelope(queue: QueueOnServer) -> None:
    queue.reserve("job", consumer=PLAIN, envelope=envelope_of("job", extra=',"retention_ms":3600000'))
    xack(queue, "job")
    assert look(queue).closed == 1
    assert queue.state_of("job") == "completed"


def test_what_a_deleted_consumer_held_is_delivered_again(filled: QueueOnServer) -> None:
    filled.server.xgroup_delconsumer(filled.stream, GROUP, OURS)
    assert repair(filled).redelivered == 1
    xack(filled, "plain")
    assert repair(filled).closed == 1
    assert states(filled) == STATES | {"ours": "ready", "plain": "absent"}


def test_so_is_what_the_only_plain_consumer_held(filled: QueueOnServer) -> None:
    filled.server.xgroup_delconsumer(filled.stream, GROUP, PLAIN)
    assert repair(filled).redelivered == 1
    assert states(filled) == STATES | {"plain": "ready"}


def test_a_deleted_plain_consumer_beside_another_one_looks_done(filled: QueueOnServer) -> None:
    """The limit that the contract states: the two leave the same trace."""
    filled.read("second")
    filled.server.xgroup_delconsumer(filled.stream, GROUP, PLAIN)
    assert repair(filled).closed == 1
    assert states(filled) == STATES | {"ready": "reserved", "plain": "absent"}


def test_an_acknowledgement_beside_a_vanished_worker_is_delivered_again(filled: QueueOnServer) -> None:
    xack(filled, "plain")
    filled.server.xgroup_delconsumer(filled.stream, GROUP, OURS)
    assert repair(filled).redelivered == 2


def test_a_deleted_consumer_that_renews_loses_nothing(filled: QueueOnServer) -> None:
    held = filled.held("ours")
    filled.server.xgroup_delconsumer(filled.stream, GROUP, OURS)
    filled.renew(held)
    assert repair(filled) == Repaired()
    assert filled.ack(held)


def test_an_emptied_server_gets_its_stream_back(filled: QueueOnServer) -> None:
    filled.server.flushall()
    assert repair(filled) == Repaired()
    assert set(filled.server.keys()) == {filled.stream, filled.key("meta")}


def test_mending_before_burying_would_deliver_running_jobs_twice(filled: QueueOnServer) -> None:
    """Why the janitor buries first."""
    filled.server.delete(filled.key("entries"))
    assert filled.mend(*STATES)[1:4] == ["scheduled"] * 3
    assert repair(filled).buried == 3
