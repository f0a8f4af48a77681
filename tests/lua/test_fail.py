"""fail: give a job up and keep it, with the reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Failed, Held
from tests.support.engine import START, Engine, envelope

WHY = b'{"type":"E","message":"m"}'


def test_it_is_kept_with_the_reason(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    last = envelope("a", attempts=5)
    settled, names = engine.changes(deliver.fail(engine.scope, [Failed(held, last, WHY)]))
    assert settled == [True]
    assert names == {"failed", "jobs", "errors", "entries", "stream", "cancel", "unique", "locks", "meta"}
    assert engine.scores("failed") == {"a": START}
    assert engine.rows("jobs") == {"a": last.decode()}
    assert engine.rows("errors") == {"a": WHY.decode()}
    assert (engine.entries(), engine.pending()) == ([], {})
    assert engine.rows("meta")["failed_total"] == "1"


def test_an_unchanged_envelope_and_no_new_reason_leave_what_is_there(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.of("errors"), "a", "{}")
    settled, names = engine.changes(deliver.fail(engine.scope, [Failed(held, b"", b"")]))
    assert (settled, names) == ([True], {"failed", "entries", "stream", "meta"})


def test_recoveries_stay_to_be_shown(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.of("recoveries"), "a", 3)
    engine.run(deliver.fail(engine.scope, [Failed(held, b"", WHY)]))
    assert engine.rows("recoveries") == {"a": "3"}


def test_a_batch_with_everything(engine: Engine) -> None:
    one, two, three = engine.reserved("a", "b", "c")
    engine.run(deliver.hand_back(engine.scope, [two]))
    given_up = [Failed(one, b"", WHY), Failed(two, b"", WHY), Failed(Held("nobody", "1-1"), b"", WHY)]
    assert engine.run(deliver.fail(engine.scope, given_up)) == [True, False, False]
    assert [engine.state(held.id) for held in (one, two, three)] == [State.FAILED, State.READY, State.RESERVED]


def test_fenced_changes_nothing(engine: Engine) -> None:
    (mine,) = engine.reserved("a")
    engine.run(deliver.hand_back(engine.scope, [mine]))
    engine.read("dq:other:1:b")
    assert engine.unchanged(deliver.fail(engine.scope, [Failed(mine, b"{}", WHY)])) == [False]


def test_nothing_to_settle_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(deliver.fail(engine.scope, [])) == []


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_half_a_delivery_settles_nothing(engine: Engine, missing: int) -> None:
    one, two = engine.reserved("a", "b")
    call = deliver.fail(engine.scope, [Failed(one, b"", WHY), Failed(two, b"", WHY)])
    with pytest.raises(ResponseError, match="a delivery is: id, entry id, envelope, failure"):
        engine.run(replace(call, args=call.args[:-missing]))
    assert len(engine.pending()) == 2


def test_payload_and_reason_are_bytes_to_it(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.fail(engine.scope, [Failed(held, b"\x00\xff[]", b"\xfe\x00")]))
    assert engine.client.hget(engine.keys.of("jobs"), "a") == b"\x00\xff[]"
    assert engine.client.hget(engine.keys.of("errors"), "a") == b"\xfe\x00"
