"""release: try again later; the entry ends, the job waits, and nothing of its history is lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Held, Released
from tests.support.engine import START, Engine, envelope


def test_it_waits_for_its_new_time(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    again, why = envelope("a", attempts=1), b'{"type":"E","message":"m"}'
    settled, names = engine.changes(deliver.release(engine.scope, [Released(held, 500, again, why)]))
    assert settled == [True]
    assert names == {"scheduled", "jobs", "errors", "entries", "stream", "cancel", "meta"}
    assert engine.scores("scheduled") == {"a": START + 500}
    assert engine.rows("jobs") == {"a": again.decode()}
    assert engine.rows("errors") == {"a": why.decode()}
    assert (engine.entries(), engine.pending(), engine.rows("cancel")) == ([], {}, {})
    assert engine.rows("meta")["released_total"] == "1"


def test_a_snooze_leaves_envelope_and_failure_as_they_are(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.of("errors"), "a", "{}")
    settled, names = engine.changes(deliver.release(engine.scope, [Released(held, 500)]))
    assert (settled, names) == ([True], {"scheduled", "entries", "stream", "meta"})


def test_recoveries_survive(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.of("recoveries"), "a", 3)
    engine.run(deliver.release(engine.scope, [Released(held, 500)]))
    assert engine.rows("recoveries") == {"a": "3"}


def test_a_payload_that_was_lost_comes_back_with_the_envelope(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        engine.run(deliver.release(engine.scope, [Released(held, 5, envelope("a", attempts=1))]))


def test_a_batch_with_everything(engine: Engine) -> None:
    one, two, three = engine.reserved("a", "b", "c")
    engine.run(deliver.hand_back(engine.scope, [two]))
    back = [Released(one, 9), Released(two, 9), Released(Held("nobody", "1-1"), 9), Released(three, 3)]
    assert engine.run(deliver.release(engine.scope, back)) == [True, False, False, True]
    assert engine.scores("scheduled") == {"c": START + 3, "a": START + 9}
    assert engine.state("b") == State.READY


def test_fenced_changes_nothing(engine: Engine) -> None:
    (mine,) = engine.reserved("a")
    engine.run(deliver.hand_back(engine.scope, [mine]))
    engine.read("dq:other:1:b")
    assert engine.unchanged(deliver.release(engine.scope, [Released(mine, 9, b"{}", b"{}")])) == [False]


def test_nothing_to_settle_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(deliver.release(engine.scope, [])) == []


@pytest.mark.parametrize("delay", ["soon", "", "nan", "9007199254740991"])
def test_a_delay_that_is_none_settles_nothing(engine: Engine, delay: str) -> None:
    one, two = engine.reserved("a", "b")
    call = deliver.release(engine.scope, [Released(one, 1), Released(two, 1)])
    bad = replace(call, args=(*call.args[:-3], delay, *call.args[-2:]))
    with pytest.raises(ResponseError, match="a delivery is: id, entry id, delay_ms, envelope, failure"):
        engine.run(bad)
    assert len(engine.pending()) == 2


def test_half_a_delivery_settles_nothing(engine: Engine) -> None:
    one, two = engine.reserved("a", "b")
    call = deliver.release(engine.scope, [Released(one, 1), Released(two, 1)])
    for missing in (1, 2, 3):
        with pytest.raises(ResponseError):
            engine.run(replace(call, args=call.args[:-missing]))
    assert len(engine.pending()) == 2


def test_due_at_once_it_is_promoted_by_the_mover(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.release(engine.scope, [Released(held, 0)]))
    assert engine.state("a") == State.SCHEDULED
    engine.run(deliver.promote(engine.scope))
    (fresh,) = engine.read()
    assert fresh.entry != held.entry
