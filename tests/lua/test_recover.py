"""recover: the deliveries of a process known to be dead come back at once; counted and ended as by reclaim."""

from __future__ import annotations

from delayq.core import failure as failures
from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Acked, Held, Recovered
from tests.support.engine import START, Engine

OTHER = "dq:other:1:b"


def recover(engine: Engine, *held: Held) -> Recovered:
    return engine.run(deliver.recover(engine.scope, held))


def test_it_joins_the_tail_without_waiting_for_a_lease(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    (untouched,) = engine.reserved("u")
    engine.ready("b")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    payload = engine.rows("jobs")["a"]
    answer, names = engine.changes(deliver.recover(engine.scope, [held]))
    assert answer == Recovered(1, 1, 0)
    assert names == {"stream", "entries", "recoveries", "meta"}
    assert engine.in_stream() == ["u", "b", "a"]
    fresh, fields = engine.entries()[-1]
    assert fields == {"id": "a", "job": payload, "due": str(START), "recoveries": "1", "stop": "1"}
    assert set(engine.rows("cancel")) == {"a"}
    assert engine.rows("entries")["a"] == fresh != held.entry
    assert (engine.rows("recoveries"), set(engine.pending())) == ({"a": "1"}, {untouched.entry})
    assert engine.rows("meta")["reclaimed_total"] == "1"
    assert [held.id for held in engine.read(OTHER)] == ["b", "a"]


def test_twice_is_once_and_a_foreign_entry_is_left_alone(engine: Engine) -> None:
    (old,) = engine.reserved("a")
    recover(engine, old)
    (new,) = engine.read(OTHER)
    assert engine.unchanged(deliver.recover(engine.scope, [old])) == Recovered(1, 0, 0)
    assert engine.run(deliver.ack(engine.scope, [Acked(new)])) == [True]
    assert engine.unchanged(deliver.recover(engine.scope, [new, Held("nobody", "1-1")])) == Recovered(2, 0, 0)


def test_reclaims_and_recoveries_count_together_and_the_fourth_fails(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.calm()
    engine.rest([held.entry], 30_000)
    assert engine.run(deliver.reclaim(engine.scope)).back == 1
    for number in (1, 2):
        (held,) = engine.read(f"dq:h:{number}:x")
        assert recover(engine, held) == Recovered(1, 1, 0)
    (held,) = engine.read(OTHER)
    answer, names = engine.changes(deliver.recover(engine.scope, [held]))
    assert answer == Recovered(1, 0, 1)
    assert names == {"stream", "entries", "failed", "errors", "recoveries", "unique", "locks", "meta"}
    assert (engine.state("a"), engine.rows("recoveries")) == (State.FAILED, {"a": "4"})
    failure = failures.decode(engine.rows("errors")["a"].encode())
    assert failure is not None
    assert (failure.type, failure.at_ms) == ("WorkerVanished", engine.now)
    assert "vanished 4 times" in failure.message
    assert engine.rows("meta")["failed_total"] == "1"


def test_no_more_than_a_megabyte_but_one_at_least(engine: Engine) -> None:
    large = b'"' + b"x" * 600_000 + b'"'
    held = engine.reserved("a", "b", data=large)
    held += engine.reserved("c", data=b'"' + b"x" * 1_500_000 + b'"')
    looked = []
    while held:
        answer = recover(engine, *held)
        looked.append(answer.looked)
        held = held[answer.looked :]
    assert looked == [1, 1, 1]
    assert engine.in_stream() == ["a", "b", "c"]


def test_nothing_asked_is_nothing_done(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(deliver.recover(engine.scope, [])) == Recovered(0, 0, 0)


def test_a_lost_payload_comes_back_from_the_entry(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    payload = engine.rows("jobs")["a"]
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert recover(engine, held) == Recovered(1, 1, 0)
    assert engine.rows("jobs")["a"] == payload


def test_nothing_is_made_without_a_stream(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        assert engine.unchanged(deliver.recover(engine.scope, [held])) == Recovered(1, 0, 0)
        engine.client.flushall()
