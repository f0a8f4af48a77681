"""A failure keeps those before it, also when the worker that settles writes no history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from delayq.core import failure as failures
from delayq.core.failure import MAX_HISTORY, Failure
from delayq.core.followups import End
from delayq.redis.calls import deliver, follow, produce
from delayq.redis.calls.deliver import Failed, Held, Released
from delayq.redis.calls.follow import Finished
from tests.support.engine import Engine

FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "no history": lambda failure: json.dumps(failure, separators=(",", ":")),
    "empty": lambda failure: json.dumps({**failure, "history": []}, separators=(",", ":")),
    "with blanks": lambda failure: json.dumps({**failure, "history": []}, indent=1),
    "first member": lambda failure: json.dumps({"history": [], **failure}),
}
ENDS: dict[str, Callable[[Engine, Held, bytes], Any]] = {
    "fail": lambda engine, held, why: deliver.fail(engine.scope, [Failed(held, b"", why)]),
    "finish": lambda engine, held, why: follow.finish(engine.scope, [Finished(held, End.FAILED, [], 0, b"", why)]),
}


def attempt(engine: Engine, number: int, form: str, end: str = "") -> None:
    """Read the job and end this attempt: try it again, or give it up as `end` says."""
    (held,) = engine.read()
    message = f'attempt {number} says ,"history":[] ] }} [ {{'
    why = FORMS[form]({"type": "E", "message": message, "attempt": number}).encode()
    if end:
        engine.run(ENDS[end](engine, held, why))
    else:
        engine.run(deliver.release(engine.scope, [Released(held, 0, b"", why)]))
        engine.run(deliver.promote(engine.scope))


def on_record(engine: Engine) -> Failure:
    raw = engine.rows("errors")["a"]
    json.loads(raw)  # it is JSON for anybody
    found = failures.decode(raw.encode())
    assert found is not None
    return found


def attempts(failure: Failure) -> list[int | None]:
    return [*(one.attempt for one in failure.history), failure.attempt]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", FORMS)
def test_three_attempts_are_all_kept(each_engine: Engine, form: str, end: str) -> None:
    each_engine.ready("a")
    for number in (1, 2):
        attempt(each_engine, number, form)
    attempt(each_engine, 3, form, end)
    found = on_record(each_engine)
    assert attempts(found) == [1, 2, 3]
    assert [one.message for one in (*found.history, found)] == [
        f'attempt {number} says ,"history":[] ] }} [ {{' for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_hundred_attempts_keep_the_first_the_last_and_a_bounded_number(engine: Engine, form: str) -> None:
    engine.ready("a")
    for number in range(1, 101):
        attempt(engine, number, form)
    found = attempts(on_record(engine))
    assert (found[0], found[-1]) == (1, 100)
    assert len(found) == MAX_HISTORY


def test_a_history_of_its_own_is_left_as_it_is(engine: Engine) -> None:
    engine.ready("a")
    attempt(engine, 1, "no history")
    (held,) = engine.read()
    why = b'{"type":"E","message":"m","attempt":2,"history":[{"type":"E","message":"mine","attempt":7}]}'
    engine.run(deliver.fail(engine.scope, [Failed(held, b"", why)]))
    assert engine.rows("errors") == {"a": why.decode()}


@pytest.mark.parametrize("odd", ["", "{}", "no JSON", '"text"', "[1]"])
def test_what_is_no_failure_is_written_as_it_came(engine: Engine, odd: str) -> None:
    engine.ready("a")
    attempt(engine, 1, "no history")
    before = engine.rows("errors")["a"]
    (held,) = engine.read()
    engine.run(deliver.fail(engine.scope, [Failed(held, b"", odd.encode())]))
    assert engine.rows("errors") == {"a": odd or before}


def test_what_is_on_record_and_no_object_is_not_taken_along(engine: Engine) -> None:
    engine.ready("a")
    (held,) = engine.read()
    engine.client.hset(engine.keys.of("errors"), "a", "no JSON")
    engine.run(deliver.fail(engine.scope, [Failed(held, b"", b'{"type":"E","message":"m"}')]))
    assert engine.rows("errors") == {"a": '{"type":"E","message":"m"}'}


def archived(engine: Engine) -> None:
    engine.run(produce.archive(engine.scope, "a", "no", token=f"t{engine.now}"))


def reclaimed(engine: Engine) -> None:
    (held,) = started(engine)
    engine.calm()
    engine.rest([held.entry], engine.options.lease_ms)
    engine.run(deliver.reclaim(engine.scope))


def recovered(engine: Engine) -> None:
    engine.run(deliver.recover(engine.scope, started(engine)))


def started(engine: Engine) -> list[Held]:
    engine.run(deliver.promote(engine.scope))
    return engine.read()


def promoted_without_payload(engine: Engine) -> None:
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        engine.run(deliver.promote(engine.scope))


def mended(engine: Engine) -> None:
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        engine.run(deliver.mend(engine.scope, ["a"]))


GIVEN_UP: dict[str, Callable[[Engine], None]] = {
    "archive": archived,
    "reclaim": reclaimed,
    "recover": recovered,
    "promote": promoted_without_payload,
    "mend": mended,
}


@pytest.mark.parametrize("script", ["archive", "reclaim", "recover"])
def test_a_job_given_up_again_and_again_keeps_the_first_failure_and_a_bounded_number(
    engine: Engine, script: str
) -> None:
    engine = engine.with_options(max_recoveries=0)
    engine.failed("a")
    first, payload = on_record(engine), engine.rows("jobs")["a"].encode()
    for _ in range(2 * MAX_HISTORY):
        engine.now += 1
        engine.run(produce.retry(engine.scope, "a", hashlib.sha1(payload).hexdigest(), payload, ""))
        GIVEN_UP[script](engine)
    found = on_record(engine)
    assert found.history[0] == first
    assert found.at_ms == engine.now
    assert len(found.history) == MAX_HISTORY - 1


@pytest.mark.parametrize("odd", ["no JSON", '"text"', "[1]", "{"])
@pytest.mark.parametrize("script", GIVEN_UP)
def test_a_failure_of_delayqs_own_takes_no_odd_record_along(engine: Engine, script: str, odd: str) -> None:
    engine = engine.with_options(max_recoveries=0)
    engine.schedule([engine.job("a", "+1")])
    engine.now += 1
    engine.client.hset(engine.keys.of("errors"), "a", odd)
    GIVEN_UP[script](engine)
    assert on_record(engine).history == []
