"""tidy: a queue's frame, its stream, group and meta, and the two sums at one instant."""

from __future__ import annotations

import pytest

from delayq.core.states import Answer, State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Sums, UnsettledPage
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, Engine

EMPTY = Sums(30_000, 0, 0, 0, 0, 0, 0, 0, 0, False)


def tidy(engine: Engine) -> Sums:
    """Without the sum of the counters, which has a test of its own."""
    return engine.run(deliver.tidy(engine.scope))._replace(counted=0)


def unsettled(engine: Engine, *, everything: bool = False) -> UnsettledPage:
    return engine.run(deliver.unsettled(engine.scope, "-", "", everything=everything))


def test_a_queue_that_never_had_a_job_can_be_blocked_on(each_engine: Engine) -> None:
    engine = each_engine
    assert engine.changes(deliver.tidy(engine.scope)) == (EMPTY._replace(new=True), {"stream", "meta"})
    assert engine.last_delivered() == "0-0"
    assert engine.rows("meta") == {"schema": "1", "lease_ms": "30000", "shards": "1", "delivered": "0-0"}
    assert engine.unchanged(deliver.tidy(engine.scope)) == EMPTY


def test_the_sum_of_all_counters_grows_with_every_move_and_else_stays(engine: Engine) -> None:
    engine.schedule([engine.job("a"), engine.job("b")])
    assert engine.run(deliver.tidy(engine.scope)).counted == 2
    engine.run(produce.cancel(engine.scope, "a", running=False, token="t"))
    assert engine.run(deliver.tidy(engine.scope)).counted == 3
    assert engine.run(deliver.tidy(engine.scope)).counted == 3


def test_the_sums(engine: Engine) -> None:
    engine.failed("f")
    engine.completed("c1", "c2")
    engine.reserved("r", digest="d")
    engine.ready("y1", "y2")
    engine.schedule([engine.job(name) for name in ("s1", "s2", "s3")])
    sums = tidy(engine)
    assert sums == Sums(30_000, 3, 3, 3, 1, 2, 9, 1, 1, False)
    assert sums.agree


@pytest.mark.parametrize("lease", ["-5", "0", "abc", ""])
def test_a_lease_that_is_none_becomes_the_default(engine: Engine, lease: str) -> None:
    """A worker would hold nothing long enough to start it, and a janitor take everything back at once."""
    engine.ready("a")
    engine.client.hset(engine.keys.meta, "lease_ms", lease)
    assert tidy(engine).lease_ms == 30_000
    assert engine.rows("meta")["lease_ms"] == "30000"
    engine.client.hset(engine.keys.meta, "lease_ms", "250")
    assert tidy(engine).lease_ms == 250


@pytest.mark.parametrize(
    ("key", "row"),
    [("jobs", "s"), ("jobs", "y"), ("scheduled", "s"), ("failed", "f"), ("completed", "c"), ("entries", "y")],
)
def test_the_sums_show_damage(engine: Engine, key: str, row: str) -> None:
    engine.failed("f")
    engine.completed("c")
    engine.ready("y")
    engine.schedule([engine.job("s")])
    engine.sound = False
    assert tidy(engine).agree
    remove = engine.client.zrem if key in ("scheduled", "failed", "completed") else engine.client.hdel
    remove(engine.keys.of(key), row)
    assert not tidy(engine).agree


def test_a_lock_without_its_digest_is_damage_and_a_digest_without_its_lock_is_free(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    locks = engine.rows("locks")
    with engine.damaged():
        engine.client.delete(engine.keys.of("locks"))
        assert tidy(engine).agree
        engine.client.hset(engine.keys.of("locks"), mapping=locks)
        engine.client.delete(engine.keys.of("unique"))
        assert not tidy(engine).agree
        engine.run(deliver.mend(engine.scope, ["a"]))
        assert tidy(engine).agree


@pytest.mark.parametrize("trouble", ["XDEL", "XTRIM", "XADD"])
def test_so_they_do_in_the_stream(engine: Engine, trouble: str) -> None:
    (held,) = engine.reserved("a")
    engine.sound = False
    stream = engine.keys.stream
    if trouble == "XDEL":
        engine.client.xdel(stream, held.entry)
    elif trouble == "XTRIM":
        engine.client.xtrim(stream, maxlen=0, approximate=False)
    else:
        engine.client.xadd(stream, {"junk": "x"})
    assert not tidy(engine).agree


def test_it_remembers_what_was_delivered(engine: Engine) -> None:
    tidy(engine)
    _, b = engine.reserved("a", "b")
    _, names = engine.changes(deliver.tidy(engine.scope))
    assert (names, engine.rows("meta")["delivered"]) == ({"meta"}, b.entry)


def test_meta_that_was_deleted_is_made_again(engine: Engine) -> None:
    engine.reserved("a")
    tidy(engine)
    before = engine.rows("meta")
    engine.client.delete(engine.keys.meta)
    assert engine.run(deliver.tidy(engine.with_options(lease_ms=7_000).scope)).lease_ms == 7_000
    assert engine.rows("meta")["delivered"] == before["delivered"]


@pytest.mark.parametrize("tidied", [True, False], ids=["seen before", "never seen"])
def test_without_its_group_nobody_reads_an_old_entry_again(each_engine: Engine, tidied: bool) -> None:
    engine = each_engine
    engine.reserved("a", "b")
    engine.ready("c")
    if tidied:
        tidy(engine)
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    last = engine.entries()[-1][0]
    sums, names = engine.changes(deliver.tidy(engine.scope))
    assert (sums.regrouped, sums.agree, names) == (True, True, {"stream", "meta"})
    assert engine.last_delivered() == last
    assert (engine.rows("meta")["anew"], engine.rows("meta")["delivered"]) == (last, last)
    assert engine.read() == []
    assert [(row.id, row.verdict) for row in unsettled(engine).entries] == [
        ("a", "again"),
        ("b", "again"),
        ("c", "again"),
    ]
    assert not tidy(engine).regrouped


def test_a_group_that_somebody_made_again_at_the_start_is_set_to_the_end(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("a", "b")
    tidy(engine)
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    assert tidy(engine).regrouped
    assert engine.read() == []
    assert [row.verdict for row in unsettled(engine).entries] == ["again", "again"]


def test_what_was_read_before_it_was_set_to_the_end_stays_with_its_reader(engine: Engine) -> None:
    engine.reserved("a", "b")
    tidy(engine)
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    engine.client.xreadgroup(GROUP, OURS, {engine.keys.stream: ">"}, count=1)
    assert tidy(engine).regrouped
    assert [row.id for row in unsettled(engine).entries] == ["b"]


def test_a_group_moved_ahead_by_an_operator_delivers_what_it_skipped(engine: Engine) -> None:
    engine.ready("a", "b")
    tidy(engine)
    engine.client.xgroup_setid(engine.keys.stream, GROUP, "$")
    assert not tidy(engine).regrouped
    assert [(row.id, row.verdict) for row in unsettled(engine).entries] == [("a", "again"), ("b", "again")]


@pytest.mark.parametrize("tidied", [True, False], ids=["seen before", "never seen"])
def test_a_deleted_stream_starts_above_every_old_entry(each_engine: Engine, tidied: bool) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    if tidied:
        tidy(engine)
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        sums = tidy(engine)
        assert (sums.stream, sums.entries, sums.agree) == (0, 1, False)
        assert engine.state("a") == State.RESERVED, "whoever holds it may be at work"
        answer = engine.run(produce.cancel(engine.scope, "a", running=False, token="t"))
        assert answer == Answer.RUNNING
        engine.run(deliver.mend(engine.scope, ["a"]))
    (fresh,) = engine.read()
    assert parts(fresh.entry) > parts(held.entry)


@pytest.mark.parametrize("group", [False, True], ids=["without a group", "with one"])
def test_a_stream_that_somebody_else_made_anew_is_lifted_above_the_old_one(engine: Engine, group: bool) -> None:
    (held,) = engine.reserved("a")
    tidy(engine)
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        engine.client.xadd(engine.keys.stream, {"junk": "x"}, id="1-1")
        if group:
            engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
        assert tidy(engine).regrouped
        engine.run(deliver.mend(engine.scope, ["a"]))
        (fresh,) = engine.read()
        assert parts(fresh.entry) > parts(held.entry)
        assert engine.run(produce.cancel(engine.scope, "a", running=False, token="t")) == Answer.RUNNING
        engine.client.flushall()


def test_a_deleted_stream_with_nothing_in_it_keeps_ids_growing(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    tidy(engine)
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    engine.client.delete(engine.keys.stream)
    assert not tidy(engine).regrouped
    (fresh,) = engine.reserved("b")
    assert parts(fresh.entry) > parts(held.entry)
    assert engine.run(deliver.ack(engine.scope, [deliver.Acked(fresh)])) == [True]


@pytest.mark.parametrize("scripts", ["schedule", "promote", "tidy"])
def test_ids_far_in_the_future_go_on_from_there(each_engine: Engine, scripts: str) -> None:
    """Somebody's XSETID to the year 5138; the stream is deleted later."""
    engine = each_engine
    tidy(engine)
    engine.client.execute_command("XSETID", engine.keys.stream, "99999999999999-7")
    (held,) = engine.reserved("a")
    tidy(engine)
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    engine.client.delete(engine.keys.stream)
    if scripts == "promote":
        engine.client.zadd(engine.keys.of("scheduled"), {"b": 1})
        engine.client.hset(engine.keys.of("jobs"), "b", "{}")
        engine.run(deliver.promote(engine.scope))
    elif scripts == "schedule":
        engine.ready("b")
    else:
        tidy(engine)
        engine.ready("b")
    (fresh,) = engine.read()
    assert parts(fresh.entry) > parts(held.entry)


def parts(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
