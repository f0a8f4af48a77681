"""progress: what a running job tells is written by its owner alone, and gone when the delivery ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from delayq.core.progress import Progress
from delayq.redis.calls import deliver, inspect, operate
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Acked, Failed, Held, Released
from delayq.redis.calls.operate import Telling
from tests.support.engine import HOUR, START, Engine

FAILURE = b'{"type":"E","message":"m"}'


def tell(engine: Engine, held: Held, document: bytes = b'{"done":3,"total":10,"note":"n"') -> list[bool]:
    return engine.run(operate.progress(engine.scope, [Telling(held, document)]))


def seen(engine: Engine, job_id: str) -> Progress | None:
    info = engine.run(inspect.get(engine.scope, job_id))
    assert info is not None
    return info.progress


def test_what_the_owner_tells_is_read_with_the_job(each_engine: Engine) -> None:
    (held,) = each_engine.reserved("a")
    assert seen(each_engine, "a") is None
    assert tell(each_engine, held) == [True]
    assert seen(each_engine, "a") == Progress(START, done=3, total=10, note="n")
    each_engine.now += 5
    assert tell(each_engine, held, b'{"partial":{"rows":[1]}') == [True]
    assert seen(each_engine, "a") == Progress(START + 5, partial={"rows": [1]})


def test_several_jobs_tell_in_one_call_and_strangers_nothing(engine: Engine) -> None:
    one, two = engine.reserved("a", "b")
    lines = [
        Telling(one, b'{"done":1'),
        Telling(Held("b", one.entry), b'{"done":2'),
        Telling(two, b'{"done":3'),
        Telling(Held("nobody", one.entry), b'{"done":4'),
    ]
    assert engine.run(operate.progress(engine.scope, lines)) == [True, False, True, False]
    assert set(engine.rows("progress")) == {"a", "b"}
    assert seen(engine, "b") == Progress(START, done=3)


def test_telling_nothing_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(operate.progress(engine.scope, [])) == []


def test_half_a_line_is_refused(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    call = operate.progress(engine.scope, [Telling(held, b"{")])
    broken: Call[Any] = Call(call.script, call.keys, call.args[:-1], call.parse)
    with pytest.raises(ResponseError, match="a line is: id"):
        engine.run(broken)
    assert engine.rows("progress") == {}


END: dict[str, Callable[[Engine, Held], Call[Any]]] = {
    "ack": lambda e, held: deliver.ack(e.scope, [Acked(held)]),
    "done": lambda e, held: deliver.done(e.scope, [held.id], [held.entry]),
    "ack, kept": lambda e, held: deliver.ack(e.scope, [Acked(held, HOUR, b"1")]),
    "release": lambda e, held: deliver.release(e.scope, [Released(held, 0)]),
    "fail": lambda e, held: deliver.fail(e.scope, [Failed(held, b"", FAILURE)]),
    "hand_back": lambda e, held: deliver.hand_back(e.scope, [held]),
}


@pytest.mark.parametrize("end", END)
def test_whatever_ends_the_delivery_drops_it(each_engine: Engine, end: str) -> None:
    engine = each_engine
    held, other = engine.reserved("a", "other")
    tell(engine, held)
    tell(engine, other)
    engine.run(END[end](engine, held))
    assert set(engine.rows("progress")) == {"other"}
    assert tell(engine, held) == [False]
    assert set(engine.rows("progress")) == {"other"}


def test_what_is_reclaimed_starts_without_it(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("first")
    engine.calm()
    (held,) = engine.reserved("a")
    tell(engine, held)
    engine.rest([held.entry, engine.held("first").entry], 60_000)
    assert engine.run(deliver.reclaim(engine.scope)).back == 2
    assert engine.rows("progress") == {}
    assert tell(engine, held) == [False]


def test_an_entry_that_is_appended_anew_starts_without_it(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a")
    tell(engine, held)
    engine.client.xdel(engine.keys.stream, held.entry)
    with engine.damaged():
        assert engine.run(deliver.mend(engine.scope, ["a"])) == ["appended"]
    assert engine.rows("progress") == {}


def test_a_fenced_owner_ends_nothing(engine: Engine) -> None:
    """An ack that comes too late must not drop what the new owner told."""
    (old,) = engine.reserved("a")
    engine.run(deliver.hand_back(engine.scope, [old]))
    (new,) = engine.read()
    tell(engine, new)
    assert engine.run(deliver.ack(engine.scope, [Acked(old)])) == [False]
    assert set(engine.rows("progress")) == {"a"}


def test_what_somebody_else_wrote_there_is_no_progress(engine: Engine) -> None:
    engine.reserved("a")
    engine.client.hset(engine.keys.of("progress"), "a", "[]")
    assert seen(engine, "a") is None
    engine.client.hset(engine.keys.of("progress"), "a", b"\xff")
    assert seen(engine, "a") is None
