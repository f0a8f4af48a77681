"""ack: the work is done; the job is forgotten, or kept for its retention."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from delayq.core.states import State
from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Acked, Held
from tests.support.engine import HOUR, OURS, START, Engine


def test_without_retention_nothing_is_left(each_engine: Engine) -> None:
    held = each_engine.laden("a")
    each_engine.ends_without_a_trace(deliver.ack(each_engine.scope, [Acked(held)]))


def test_with_retention_it_is_kept_with_its_result(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    payload = engine.rows("jobs")
    settled, names = engine.changes(deliver.ack(engine.scope, [Acked(held, HOUR, b'{"n":1}')]))
    assert (settled, names) == ([True], {"completed", "results", "entries", "stream", "meta"})
    assert engine.scores("completed") == {"a": START + HOUR}
    assert engine.rows("results") == {"a": '{"n":1}'}
    assert engine.rows("jobs") == payload


def test_a_kept_job_without_a_result_has_null(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.ack(engine.scope, [Acked(held, 1)]))
    assert engine.rows("results") == {"a": "null"}


def test_a_batch_with_everything(engine: Engine) -> None:
    one, two, three, four = engine.reserved("a", "b", "c", "d")
    engine.run(deliver.hand_back(engine.scope, [two]))
    done = [Acked(one), Acked(two), Acked(three, HOUR), Acked(Held("nobody", four.entry)), Acked(Held("d", "0-1"))]
    assert engine.run(deliver.ack(engine.scope, done)) == [True, False, True, False, False]
    assert [engine.state(name) for name in "abcd"] == [State.ABSENT, State.READY, State.COMPLETED, State.RESERVED]


def test_fenced_changes_nothing(engine: Engine) -> None:
    """A worker that was slow: its job runs elsewhere under a new entry."""
    (mine,) = engine.reserved("a")
    engine.calm()
    engine.rest([mine.entry], 60_000)
    engine.run(deliver.reclaim(engine.scope))
    assert engine.unchanged(deliver.ack(engine.scope, [Acked(mine, HOUR, b"1")])) == [False]
    (theirs,) = engine.read("dq:other:1:b")
    assert engine.unchanged(deliver.ack(engine.scope, [Acked(mine)])) == [False]
    assert engine.run(deliver.ack(engine.scope, [Acked(theirs)])) == [True]


def test_nothing_to_settle_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(deliver.ack(engine.scope, [])) == []


def test_the_same_delivery_twice_in_one_batch(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.ack(engine.scope, [Acked(held, HOUR), Acked(held, HOUR)]))
    assert engine.state("a") == State.COMPLETED


def test_a_plain_consumer_settles_with_it_too(engine: Engine) -> None:
    (held,) = engine.reserved("a", consumer="plain")
    assert engine.run(deliver.ack(engine.scope, [Acked(held)])) == [True]


def test_what_was_acknowledged_already_is_settled_all_the_same(engine: Engine) -> None:
    """Ownership is the entries hash; the count of XACK is asked by nobody."""
    (held,) = engine.reserved("a")
    engine.client.xack(engine.keys.stream, "delayq", held.entry)
    assert engine.run(deliver.ack(engine.scope, [Acked(held)])) == [True]


def test_so_is_what_somebody_trimmed_away(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.xtrim(engine.keys.stream, maxlen=0, approximate=False)
        assert engine.run(deliver.ack(engine.scope, [Acked(held)])) == [True]
    assert engine.pending() == {}


def test_so_is_what_has_lost_its_group_or_its_stream(engine: Engine) -> None:
    one, two = engine.reserved("a", "b")
    engine.client.xgroup_destroy(engine.keys.stream, "delayq")
    assert engine.run(deliver.ack(engine.scope, [Acked(one)])) == [True]
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        assert engine.run(deliver.ack(engine.scope, [Acked(two, HOUR)])) == [True]
    assert engine.state("b") == State.COMPLETED


@pytest.mark.parametrize(("at", "value"), [(-2, "soon"), (-2, "nan"), (-2, "9007199254740991"), (-1, None)])
def test_an_argument_that_is_none_settles_nothing(engine: Engine, at: int, value: str | None) -> None:
    one, two = engine.reserved("a", "b")
    call = deliver.ack(engine.scope, [Acked(one), Acked(two)])
    args = list(call.args)
    args[at : len(args) if value is None else at + 1 or len(args)] = [] if value is None else [value]
    with pytest.raises(ResponseError, match="a delivery is: id, entry id, retention_ms, result"):
        engine.run(replace(call, args=tuple(args)))
    assert engine.pending() == {one.entry: OURS, two.entry: OURS}


def test_a_batch_of_five_hundred(engine: Engine) -> None:
    names = [f"j{n}" for n in range(500)]
    held = engine.reserved(*names)
    assert engine.run(deliver.ack(engine.scope, [Acked(one) for one in held])) == [True] * 500
    assert (engine.rows("jobs"), engine.entries()) == ({}, [])
