"""Every damage the design names, the janitor's work by hand, and what must be there afterwards.

`queue` has a job in every place: later (scheduled), ready, ours and plain (held by a consumer of delayq's form and by a
plain one), gone (failed), done (completed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from delayq.core.states import State
from delayq.redis.calls import deliver, operate
from delayq.redis.calls.deliver import Acked, Held
from delayq.redis.calls.operate import Telling
from delayq.redis.keys import GROUP, PER_QUEUE
from tests.support.engine import HOUR, OURS, PLAIN, Engine
from tests.support.repair import Repairs, repair, tick
from tests.support.rule_one import broken
from tests.support.snapshot import snapshot

ORDER = {
    "later": State.SCHEDULED,
    "ready": State.READY,
    "ours": State.RESERVED,
    "plain": State.RESERVED,
    "gone": State.FAILED,
    "done": State.COMPLETED,
}
IN_STREAM = ("ready", "ours", "plain")


def fill(engine: Engine) -> None:
    engine.completed("done")
    engine.failed("gone")
    engine.reserved("plain", consumer=PLAIN, digest="d-plain")
    engine.reserved("ours", digest="d-ours")
    engine.run(operate.progress(engine.scope, [Telling(engine.held("ours"), b'{"done":1')]))
    engine.run(deliver.tidy(engine.scope))
    engine.ready("ready", digest="d-ready")
    engine.schedule([engine.job("later", digest="d-later")])
    assert {name: engine.state(name) for name in ORDER} == ORDER
    engine.sound = False


@pytest.fixture
def queue(each_engine: Engine) -> Engine:
    fill(each_engine)
    return each_engine


@pytest.fixture
def one(engine: Engine) -> Engine:
    """The same on the default flavour only."""
    fill(engine)
    return engine


def healed(engine: Engine, **moved: State) -> Counter[str]:
    """Repair, and expect every job where it was, but for those that `moved`. What was done, counted."""
    done = repair(engine).done
    assert broken(engine.client, engine.keys) == []
    assert {name: engine.state(name) for name in ORDER} == ORDER | moved
    before = snapshot(engine.client)
    assert not tick(engine, Repairs())
    assert snapshot(engine.client) == before, "a queue in order is left alone"
    engine.sound = True
    return +done


READY_AGAIN = dict.fromkeys(IN_STREAM, State.READY)
UNTOUCHED: dict[str, State] = {}


@pytest.mark.parametrize(
    ("key", "moved", "done"),
    [
        ("scheduled", UNTOUCHED, {"scheduled": 1}),
        ("jobs", {"later": State.FAILED}, {"restored": 3, "lost": 3}),
        ("stream", READY_AGAIN, {"appended": 3}),
        ("entries", UNTOUCHED, {"adopted": 3}),
        ("failed", {"gone": State.SCHEDULED}, {"scheduled": 1}),
        ("completed", UNTOUCHED, {"completed": 1}),
        ("errors", UNTOUCHED, {}),
        ("results", UNTOUCHED, {}),
        ("recoveries", UNTOUCHED, {}),
        ("cancel", UNTOUCHED, {}),
        ("progress", UNTOUCHED, {}),
        ("meta", UNTOUCHED, {}),
    ],
)
def test_a_key_was_deleted(queue: Engine, key: str, moved: dict[str, State], done: dict[str, int]) -> None:
    pending = queue.pending()
    queue.client.delete(queue.keys.of(key))
    assert healed(queue, **moved) == done
    if moved != READY_AGAIN:
        assert queue.pending() == pending, "nobody who holds something was disturbed"


def test_unique_was_deleted(queue: Engine) -> None:
    before = queue.rows("unique")
    queue.client.delete(queue.keys.of("unique"))
    assert healed(queue) == {}
    assert queue.rows("unique") == before


def test_locks_was_deleted(queue: Engine) -> None:
    """Digests without their other half: they hold as long as their owners live, and not a moment longer."""
    queue.client.delete(queue.keys.of("locks"))
    assert repair(queue).done.total() == 0
    assert queue.schedule([queue.job("x", digest="d-ours")])[0] == "kept"
    queue.run(deliver.ack(queue.scope, [Acked(queue.held("ours"))]))
    assert queue.schedule([queue.job("x", digest="d-ours")])[0] == "created"
    queue.client.flushall()


def test_every_key_of_a_queue_has_its_damage_here() -> None:
    marks = test_a_key_was_deleted.pytestmark  # type: ignore[attr-defined]
    tested = {case[0] for case in marks[0].args[1]} | {"unique", "locks"}
    assert tested == set(PER_QUEUE) - {
        "outbox",
        "stamps",
        "aside",
        "activity",
        "history",
        "types_by_hour",
        "types_by_day",
    }


Damage = Callable[[Engine], object]

STREAM_DAMAGE: dict[str, Damage] = {
    "XTRIM": lambda e: e.client.xtrim(e.keys.stream, maxlen=0, approximate=False),
    "XDEL of all": lambda e: e.client.xdel(e.keys.stream, *[entry for entry, _ in e.entries()]),
    "DEL, then a new job": lambda e: (e.client.delete(e.keys.stream), e.schedule([e.job("x", "+0")])),
    "DEL, then somebody's XADD": lambda e: (e.client.delete(e.keys.stream), e.client.xadd(e.keys.stream, {"j": "x"})),
    "XGROUP DESTROY": lambda e: e.client.xgroup_destroy(e.keys.stream, GROUP),
    "XGROUP DESTROY and CREATE at 0": lambda e: (
        e.client.xgroup_destroy(e.keys.stream, GROUP),
        e.client.xgroup_create(e.keys.stream, GROUP, "0"),
    ),
    "XGROUP DESTROY and CREATE at $": lambda e: (
        e.client.xgroup_destroy(e.keys.stream, GROUP),
        e.client.xgroup_create(e.keys.stream, GROUP, "$"),
    ),
}


@pytest.mark.parametrize("damage", STREAM_DAMAGE)
def test_everything_in_the_stream_is_delivered_again(queue: Engine, damage: str) -> None:
    old = queue.rows("entries")
    STREAM_DAMAGE[damage](queue)
    healed(queue, **READY_AGAIN)
    new = queue.rows("entries")
    assert not set(new.values()) & set(old.values()), "an entry has one owner for its whole life"
    queue.now += 1
    assert {held.id for held in queue.read()} >= set(IN_STREAM)
    assert queue.unchanged(deliver.ack(queue.scope, [Acked(Held("ours", old["ours"]))])) == [False]


@pytest.mark.parametrize("job_id", IN_STREAM)
def test_one_entry_was_deleted(queue: Engine, job_id: str) -> None:
    queue.client.xdel(queue.keys.stream, queue.held(job_id).entry)
    assert healed(queue, **{job_id: State.READY}) == {"appended": 1}


@pytest.mark.parametrize("job_id", IN_STREAM)
def test_one_row_of_entries_was_deleted(queue: Engine, job_id: str) -> None:
    held = queue.held(job_id)
    queue.client.hdel(queue.keys.of("entries"), job_id)
    assert healed(queue) == {"adopted": 1}
    assert queue.held(job_id) == held


@pytest.mark.parametrize("job_id", ORDER)
def test_one_payload_was_removed(queue: Engine, job_id: str) -> None:
    """What stands in the stream still carries it; what waits has lost it, and is reported and kept as failed."""
    payload = queue.rows("jobs")[job_id]
    queue.client.hdel(queue.keys.of("jobs"), job_id)
    done = healed(queue, **({"later": State.FAILED} if job_id == "later" else {}))
    if job_id in IN_STREAM:
        assert (done, queue.rows("jobs")[job_id]) == ({"restored": 1}, payload)
    else:
        assert done == {"lost": 1}
        assert "delayq.lost" in queue.rows("jobs")[job_id]
    if job_id == "later":
        assert "PayloadLost" in queue.rows("errors")["later"]


@pytest.mark.parametrize(("key", "job_id", "after"), [
    ("scheduled", "later", State.SCHEDULED), ("failed", "gone", State.SCHEDULED), ("completed", "done", State.COMPLETED)
])  # fmt: skip
def test_one_place_was_removed(one: Engine, key: str, job_id: str, after: State) -> None:
    one.client.zrem(one.keys.of(key), job_id)
    assert healed(one, **{job_id: after}).total() == 1


@pytest.mark.parametrize("extra", ["scheduled", "failed", "completed"])
@pytest.mark.parametrize("job_id", ORDER)
def test_a_job_was_put_in_a_second_place(one: Engine, job_id: str, extra: str) -> None:
    if extra == ORDER[job_id]:
        return
    rank = ["scheduled", "failed", "completed"]
    moved = {}
    if ORDER[job_id].value in rank and rank.index(extra) < rank.index(ORDER[job_id].value):
        moved = {job_id: State(extra)}
    one.client.zadd(one.keys.of(extra), {job_id: one.now + HOUR})
    assert healed(one, **moved) == {"single": 1}


Fields = dict[str | bytes, str | bytes]
GARBAGE: dict[str, Fields] = {
    "bytes": {b"\xff\x00": b"\xfe"},
    "no id": {"job": "{}"},
    "an unknown id": {"id": "stranger", "job": "{}", "due": "1", "recoveries": "0"},
    "an empty id": {"id": "", "job": ""},
    "a megabyte": {"junk": "x" * 2_000_000},
}


@pytest.mark.parametrize("fields", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("reader", [OURS, PLAIN, ""], ids=["read by ours", "read by a plain one", "unread"])
def test_somebody_added_garbage(one: Engine, fields: Fields, reader: str) -> None:
    one.client.xadd(one.keys.stream, fields)
    if reader:
        one.read(reader)
    assert healed(one, **({"ready": State.RESERVED} if reader else {})) == {"buried": 1}
    assert len(one.scores("failed")) == 2


@pytest.mark.parametrize("job_id", ORDER)
def test_somebody_added_a_copy_of_a_job(one: Engine, job_id: str) -> None:
    one.client.xadd(one.keys.stream, {"id": job_id, "job": "copy"})
    assert healed(one) == {"dropped": 1}


def test_a_corrupt_row_of_entries(one: Engine) -> None:
    """Nothing shows it while its holder is at work; when that one is fenced and gone, the job comes back."""
    held = one.held("ours")
    one.client.hset(one.keys.of("entries"), "ours", "junk")
    assert one.run(deliver.ack(one.scope, [Acked(held)])) == [False]
    one.calm()
    one.rest([held.entry], 60_000)
    one.run(deliver.reclaim(one.scope))
    assert healed(one, ours=State.READY) == {"dropped": 1, "appended": 1}


# -- acknowledged, or abandoned ----------------------------------------------------------------------------------------


def xack(engine: Engine, job_id: str) -> None:
    assert engine.client.xack(engine.keys.stream, GROUP, engine.held(job_id).entry) == 1


def test_a_plain_acknowledgement_closes(queue: Engine) -> None:
    xack(queue, "plain")
    assert healed(queue, plain=State.ABSENT) == {"closed": 1}
    assert "plain" not in queue.rows("jobs")
    assert "plain" not in queue.rows("locks")


def test_a_plain_acknowledgement_closes_where_there_is_no_worker_of_ours_at_all(each_engine: Engine) -> None:
    engine = each_engine
    held = engine.reserved(*[f"j{n}" for n in range(30)], consumer=PLAIN)
    for one_of_them in held[:20]:
        xack(engine, one_of_them.id)
    assert +repair(engine).done == {"closed": 20}
    assert (len(engine.entries()), len(engine.pending())) == (10, 10)


def test_with_the_retention_its_envelope_asks_for(engine: Engine) -> None:
    job = engine.job("a", "+0")
    kept = replace(job, envelope=job.envelope[:-1] + b',"retention_ms":5000}')
    engine.schedule([kept])
    engine.read(PLAIN)
    xack(engine, "a")
    assert +repair(engine).done == {"closed": 1}
    assert engine.scores("completed") == {"a": engine.now + 5_000}


def test_a_deleted_consumer_of_ours_is_delivered_again(queue: Engine) -> None:
    queue.client.xgroup_delconsumer(queue.keys.stream, GROUP, OURS)
    assert healed(queue, ours=State.READY) == {"again": 1}
    xack(queue, "plain")
    assert healed(queue, ours=State.READY, plain=State.ABSENT) == {"closed": 1}, "and acknowledgements count again"


def test_a_deleted_plain_consumer_that_was_the_only_one_is_delivered_again(queue: Engine) -> None:
    queue.client.xgroup_delconsumer(queue.keys.stream, GROUP, PLAIN)
    assert healed(queue, plain=State.READY) == {"again": 1}


def test_a_deleted_plain_consumer_beside_another_looks_like_one_that_is_done(one: Engine) -> None:
    """The limit that the contract states: nobody can tell these two apart."""
    one.read("second")
    one.client.xgroup_delconsumer(one.keys.stream, GROUP, PLAIN)
    assert healed(one, plain=State.ABSENT, ready=State.RESERVED) == {"closed": 1}


def test_an_acknowledgement_while_a_worker_of_ours_vanished_is_delivered_again(one: Engine) -> None:
    """Delivering twice is better than losing."""
    xack(one, "plain")
    one.client.xgroup_delconsumer(one.keys.stream, GROUP, OURS)
    assert healed(one, ours=State.READY, plain=State.READY) == {"again": 2}


def test_a_deleted_consumer_that_is_alive_and_renews_loses_nothing(one: Engine) -> None:
    held = one.held("ours")
    one.client.xgroup_delconsumer(one.keys.stream, GROUP, OURS)
    one.run(deliver.renew(one.scope, OURS, [held]))
    assert healed(one) == {}
    assert one.run(deliver.ack(one.scope, [Acked(held)])) == [True]


def test_nothing_at_all_is_left(queue: Engine) -> None:
    queue.client.flushall()
    assert +repair(queue).done == {}
    assert queue.key_names() == {"stream", "meta"}


# -- the order of the janitor's work -----------------------------------------------------------------------------------


def test_mending_before_burying_would_deliver_running_work_twice(one: Engine) -> None:
    """Why `bury` comes first: this is what the other order does."""
    one.client.delete(one.keys.of("entries"))
    assert one.run(deliver.mend(one.scope, list(ORDER)))[2] == "scheduled"
    assert one.scores("scheduled").keys() >= {"ours", "plain", "ready"}
    assert +repair(one).done == {"dropped": 3}
    assert broken(one.client, one.keys) == []


def test_a_script_cache_that_was_emptied_is_no_damage(one: Engine) -> None:
    one.sound = True
    one.client.script_flush()
    assert one.schedule([one.job("x")])[0] == "created"
