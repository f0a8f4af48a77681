"""done: as ack, for deliveries of which nothing is kept; it says which of them were not ours."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from delayq.core.states import State
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Held
from tests.support.engine import OURS, Engine


def done(engine: Engine, *held: Held) -> Call[list[bool]]:
    return deliver.done(engine.scope, [one.id for one in held], [one.entry for one in held])


def test_nothing_is_left(each_engine: Engine) -> None:
    held = each_engine.laden("a")
    each_engine.ends_without_a_trace(done(each_engine, held))


def test_a_batch_with_everything(each_engine: Engine) -> None:
    engine = each_engine
    one, two, three = engine.reserved("a", "b", "ü € ✓")
    engine.run(deliver.hand_back(engine.scope, [two]))
    given = (one, two, Held("nobody", three.entry), three, Held("b", "0-1"))
    assert engine.run(done(engine, *given)) == [True, False, False, True, False]
    assert [engine.state(name) for name in ("a", "b", "ü € ✓")] == [State.ABSENT, State.READY, State.ABSENT]


def test_fenced_changes_nothing(engine: Engine) -> None:
    (mine,) = engine.reserved("a")
    engine.calm()
    engine.rest([mine.entry], 60_000)
    engine.run(deliver.reclaim(engine.scope))
    assert engine.unchanged(done(engine, mine)) == [False]
    (theirs,) = engine.read("dq:other:1:b")
    assert engine.unchanged(done(engine, mine)) == [False]
    assert engine.run(done(engine, theirs)) == [True]


def test_nothing_to_settle_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(done(engine)) == []


def test_what_others_acknowledged_or_trimmed_is_settled_all_the_same(engine: Engine) -> None:
    one, two, three = engine.reserved("a", "b", "c")
    engine.client.xack(engine.keys.stream, "delayq", one.entry)
    assert engine.run(done(engine, one)) == [True]
    with engine.damaged():
        engine.client.xtrim(engine.keys.stream, maxlen=0, approximate=False)
        assert engine.run(done(engine, two)) == [True]
        engine.client.delete(engine.keys.stream)
        assert engine.run(done(engine, three)) == [True]


BAD = {
    "no MessagePack": b"\xc1",
    "no list": msgspec.msgpack.encode("a"),
    "one list": msgspec.msgpack.encode([["a"]]),
    "lists of two lengths": msgspec.msgpack.encode([["a", "b"], ["1-1"]]),
    "nothing at all": b"",
}


@pytest.mark.parametrize("bad", BAD)
def test_an_argument_that_is_none_settles_nothing(each_engine: Engine, bad: str) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    with pytest.raises(ResponseError, match="two lists of the same length"):
        engine.run(replace(done(engine, held), args=(BAD[bad],)))
    assert engine.pending() == {held.entry: OURS}


def test_ids_that_are_no_text_settle_nothing(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    bad = msgspec.msgpack.encode([["a", {"b": 1}], [held.entry, "1-1"]])
    with pytest.raises(ResponseError):
        engine.run(replace(done(engine, held), args=(bad,)))
    assert engine.pending() == {held.entry: OURS}


def test_a_batch_of_five_hundred(engine: Engine) -> None:
    held = engine.reserved(*(f"j{n}" for n in range(500)))
    assert engine.run(done(engine, *held)) == [True] * 500
    assert (engine.rows("jobs"), engine.entries()) == ({}, [])
