"""reclaim: what vanished workers hold comes back under a new entry; the fourth vanish of one job fails it."""

from __future__ import annotations

import pytest

from delayq.core import failure as failures
from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Acked, Reclaimed, Released
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, START, Engine

LEASE = 30_000
OTHER = "dq:other:1:b"


def vanish(engine: Engine, *ids: str, idle_ms: int = LEASE) -> None:
    """Nothing was heard for a lease of whoever holds these."""
    engine.rest([engine.held(job_id).entry for job_id in ids], idle_ms)


def reclaim(engine: Engine, limit: int = 500) -> Reclaimed:
    return engine.run(deliver.reclaim(engine.scope, limit))


def test_a_vanished_workers_job_joins_the_tail(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.ready("b")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    engine.calm()
    vanish(engine, "a")
    payload = engine.rows("jobs")["a"]
    answer, names = engine.changes(deliver.reclaim(engine.scope))
    assert answer == Reclaimed(1, 0, 0, LEASE, False)
    assert names == {"stream", "entries", "recoveries", "meta"}
    assert engine.in_stream() == ["b", "a"]
    fresh, fields = engine.entries()[1]
    assert fields == {"id": "a", "job": payload, "due": str(START), "recoveries": "1", "stop": "1"}
    assert set(engine.rows("cancel")) == {"a"}
    assert engine.rows("entries")["a"] == fresh != held.entry
    assert (engine.rows("recoveries"), engine.pending()) == ({"a": "1"}, {})
    assert (engine.state("a"), engine.rows("meta")["reclaimed_total"]) == (State.READY, "1")
    assert [held.id for held in engine.read(OTHER)] == ["b", "a"]


def test_the_zombie_changes_nothing_any_more(each_engine: Engine) -> None:
    engine = each_engine
    (old,) = engine.reserved("a")
    engine.calm()
    vanish(engine, "a")
    reclaim(engine)
    (new,) = engine.read(OTHER)
    pending = engine.pending()
    assert pending == {new.entry: OTHER}
    assert engine.client.xack(engine.keys.stream, GROUP, old.entry) == 0
    assert engine.client.xclaim(engine.keys.stream, GROUP, OURS, 0, [old.entry], justid=True) == []
    assert engine.run(deliver.renew(engine.scope, OURS, [old])).lost == ("a",)
    scope = engine.scope
    settlings = [
        deliver.ack(scope, [Acked(old)]),
        deliver.release(scope, [Released(old, 0)]),
        deliver.fail(scope, [deliver.Failed(old, b"", b"{}")]),
        deliver.hand_back(scope, [old]),
    ]
    assert [engine.unchanged(call) for call in settlings] == [[False]] * 4
    assert engine.pending() == pending
    assert engine.run(deliver.ack(scope, [Acked(new)])) == [True]


def test_what_is_renewed_is_not_touched(engine: Engine) -> None:
    engine.reserved("a", "b")
    engine.calm()
    vanish(engine, "a", "b")
    engine.run(deliver.renew(engine.scope, OURS, [engine.held("a")]))
    assert reclaim(engine).back == 1
    assert (engine.state("a"), engine.state("b")) == (State.RESERVED, State.READY)


def test_one_dead_behind_many_that_live_is_found_at_once(engine: Engine) -> None:
    """However many are looked at in one call: those that live are not among them."""
    engine.reserved(*[f"live{n:03}" for n in range(600)])
    engine.reserved("dead")
    engine.calm()
    vanish(engine, "dead")
    assert reclaim(engine, 5).back == 1
    assert engine.state("dead") is State.READY


@pytest.mark.parametrize(("idle_ms", "back"), [(LEASE - 5_000, 0), (LEASE, 1)])
def test_a_lease_is_a_lease(engine: Engine, idle_ms: int, back: int) -> None:
    engine.reserved("a")
    engine.calm()
    vanish(engine, "a", idle_ms=idle_ms)
    assert reclaim(engine).back == back


def test_the_queues_own_lease_counts(engine: Engine) -> None:
    """Not the caller's: every script reads it from meta."""
    short = engine.with_options(lease_ms=2_000)
    short.reserved("a")
    short.calm()
    vanish(short, "a", idle_ms=2_000)
    engine.now = short.now
    answer = reclaim(engine)
    assert (answer.back, answer.lease_ms) == (1, 2_000)


def test_a_plain_consumers_work_comes_back_too(engine: Engine) -> None:
    engine.reserved("a", consumer="plain")
    engine.calm()
    vanish(engine, "a")
    assert reclaim(engine).back == 1


def test_the_fourth_vanish_fails_the_job(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("a", digest="d")
    first = failures.encode(failures.Failure(type="ValueError", message="the first error"))
    engine.run(deliver.release(engine.scope, [Released(engine.held("a"), 0, b"", first)]))
    engine.run(deliver.promote(engine.scope))
    engine.read()
    engine.calm()
    for times in (1, 2, 3):
        vanish(engine, "a")
        assert reclaim(engine) == Reclaimed(1, 0, 0, LEASE, False)
        assert engine.entries()[-1][1]["recoveries"] == str(times)
        engine.read(f"dq:h:{times}:x")
    vanish(engine, "a")
    answer, names = engine.changes(deliver.reclaim(engine.scope))
    assert answer == Reclaimed(0, 1, 0, LEASE, False)
    assert names == {"stream", "entries", "failed", "errors", "recoveries", "unique", "locks", "meta"}
    assert engine.scores("failed") == {"a": engine.now}
    assert engine.rows("recoveries") == {"a": "4"}
    failure = failures.decode(engine.rows("errors")["a"].encode())
    assert failure is not None
    assert (failure.type, failure.at_ms) == ("WorkerVanished", engine.now)
    assert "vanished 4 times" in failure.message
    assert [past.message for past in failure.history] == ["the first error"]
    assert engine.rows("meta")["failed_total"] == "1"
    assert (engine.entries(), engine.pending()) == ([], {})


def test_a_job_that_never_failed_before_has_no_history(engine: Engine) -> None:
    strict = engine.with_options(max_recoveries=0)
    strict.reserved("a")
    strict.calm()
    vanish(strict, "a")
    assert reclaim(strict) == Reclaimed(0, 1, 0, LEASE, False)
    failure = failures.decode(strict.rows("errors")["a"].encode())
    assert failure is not None
    assert failure.history == []
    assert "vanished 1 times" in failure.message


def test_batches(engine: Engine) -> None:
    names = [f"j{n}" for n in range(5)]
    engine.reserved(*names)
    engine.calm()
    vanish(engine, *names)
    answers = [reclaim(engine, 2) for _ in range(4)]
    assert [(answer.back, answer.more) for answer in answers] == [(2, True), (2, True), (1, False), (0, False)]
    assert engine.in_stream() == names


def test_no_more_than_a_megabyte_but_one_at_least(engine: Engine) -> None:
    large = b'"' + b"x" * 600_000 + b'"'
    engine.reserved("a", "b", data=large)
    engine.reserved("c", data=b'"' + b"x" * 1_500_000 + b'"')
    engine.calm()
    vanish(engine, "a", "b", "c")
    answers = [reclaim(engine) for _ in range(4)]
    assert [(answer.back, answer.more) for answer in answers] == [(1, True), (1, True), (1, False), (0, False)]


def test_garbage_that_somebody_held_is_only_let_go(engine: Engine) -> None:
    """tidy then meets it as delivered and no longer pending, and buries it."""
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        entry = engine.client.xadd(engine.keys.stream, {"junk": "x"}).decode()
        engine.read()
        engine.calm()
        engine.rest([entry], LEASE)
        assert reclaim(engine) == Reclaimed(0, 0, 0, LEASE, False)
        assert (engine.pending(), len(engine.entries())) == ({}, 1)
        engine.run(deliver.bury(engine.scope, [(entry, b"{}")]))


def test_large_garbage_counts_towards_the_megabyte(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        entries = [engine.client.xadd(engine.keys.stream, {"junk": "x" * 700_000}).decode() for _ in range(3)]
        engine.read()
        engine.calm()
        engine.rest(entries, LEASE)
        assert reclaim(engine).more
        assert len(engine.pending()) == 2
        engine.client.flushall()


def test_an_entry_that_is_gone_loses_its_pending_row(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.calm()
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, held.entry)
        engine.rest([held.entry], LEASE)
        assert reclaim(engine).back == 0
        assert engine.pending() == {}
        assert engine.rows("entries") == {"a": held.entry}, "mend appends it anew"
        engine.run(deliver.mend(engine.scope, ["a"]))


def test_a_payload_that_was_lost_comes_from_the_entry(engine: Engine) -> None:
    """Only acknowledged, it would look like work that a plain consumer had done."""
    engine.reserved("a", consumer="plain")
    payload = engine.rows("jobs")
    engine.calm()
    vanish(engine, "a")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert reclaim(engine).back == 1
    assert engine.rows("jobs") == payload


def test_without_a_payload_anywhere_it_stays_pending(engine: Engine) -> None:
    engine.reserved("a", consumer="plain")
    entry = engine.client.xadd(engine.keys.stream, {"id": "a"}).decode()
    engine.read("plain")
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, engine.held("a").entry)
        engine.client.hset(engine.keys.of("entries"), "a", entry)
        engine.client.hdel(engine.keys.of("jobs"), "a")
        engine.calm()
        vanish(engine, "a")
        answer = reclaim(engine, 1)
        assert (answer.back, answer.more) == (0, False), "no progress, so nobody is told to call again"
        assert entry in engine.pending()
        engine.client.flushall()


def test_a_recovery_count_that_is_no_number_stops_nothing(engine: Engine) -> None:
    engine.reserved("a")
    engine.client.hset(engine.keys.of("recoveries"), "a", "many")
    engine.calm()
    vanish(engine, "a")
    assert reclaim(engine).back == 1
    assert engine.rows("recoveries") == {"a": "1"}


def test_without_its_group_it_has_nothing_to_do(engine: Engine) -> None:
    engine.reserved("a")
    engine.calm()
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    assert reclaim(engine) == Reclaimed(0, 0, 0, LEASE, False)
    assert engine.in_stream() == ["a"]


def test_without_a_stream_it_changes_nothing(engine: Engine) -> None:
    assert engine.unchanged(deliver.reclaim(engine.scope)) == Reclaimed(0, 0, 0, LEASE, False)


def test_what_is_on_record_of_a_job_counts_towards_the_megabyte_too(engine: Engine) -> None:
    strict = engine.with_options(max_recoveries=0)
    strict.reserved("a", "b", "c")
    for name in ("a", "b", "c"):
        strict.client.hset(strict.keys.of("errors"), name, '{"type":"E","message":"' + "x" * 700_000 + '"}')
    strict.calm()
    vanish(strict, "a", "b", "c")
    answers = [reclaim(strict), reclaim(strict)]
    assert [(answer.failed, answer.more) for answer in answers] == [(2, True), (1, False)]
