"""Unique for a window: time alone frees it."""

from __future__ import annotations

import pytest

from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, inspect, lock, produce
from delayq.redis.calls.deliver import Acked, Failed
from tests.support.engine import HOUR, Engine

MINUTE = 60_000
LOCK = f"d.{MINUTE}"


def held_by(owner: str, until_ms: int) -> tuple[dict[str, str], dict[str, str]]:
    return {LOCK: f"{owner} {until_ms}"}, {}


def locks(engine: Engine) -> tuple[dict[str, str], dict[str, str]]:
    return engine.rows("unique"), engine.rows("locks")


def test_the_first_owns_it_until_then(each_engine: Engine) -> None:
    engine, until_ms = each_engine, each_engine.now + MINUTE
    assert engine.schedule([engine.job("a", digest=LOCK)]) == [Answer.CREATED]
    assert locks(engine) == held_by("a", until_ms)
    engine.now = until_ms - 1
    (ref,) = engine.run(engine.scheduling([engine.job("b", digest=LOCK)])).refs
    assert (ref.outcome, ref.id, ref.state) == (Answer.KEPT, "a", State.SCHEDULED)
    assert engine.schedule([engine.job("b", digest=LOCK)], OnConflict.ERROR) == [Answer.CONFLICT]
    engine.now = until_ms
    assert engine.schedule([engine.job("b", digest=LOCK)]) == [Answer.CREATED], "taken over at once"
    assert locks(engine) == held_by("b", until_ms + MINUTE)


@pytest.mark.parametrize("end", ["ack", "keep", "fail", "forget", "cancel", "clear"])
def test_nothing_else_frees_it(engine: Engine, end: str) -> None:
    until_ms = engine.now + MINUTE
    if end == "cancel":
        engine.schedule([engine.job("a", digest=LOCK)])
        engine.run(produce.cancel(engine.scope, "a", running=False, token="c"))
    elif end == "clear":
        engine.schedule([engine.job("a", digest=LOCK)])
        engine.run(inspect.clear(engine.scope))
    else:
        (held,) = engine.reserved("a", digest=LOCK)
        if end in ("ack", "keep"):
            engine.run(deliver.ack(engine.scope, [Acked(held, HOUR if end == "keep" else 0)]))
        else:
            engine.run(deliver.fail(engine.scope, [Failed(held, b"", b"{}")]))
        if end == "forget":
            engine.run(produce.forget(engine.scope, ["a"]))
    assert locks(engine) == held_by("a", until_ms)
    (ref,) = engine.unchanged(engine.scheduling([engine.job("b", digest=LOCK)])).refs
    gone = {"keep": State.COMPLETED, "fail": State.FAILED}
    assert (ref.outcome, ref.id, ref.state) == (Answer.KEPT, "a", gone.get(end, State.ABSENT))


def test_it_keeps_out_its_own_id_too(engine: Engine) -> None:
    """Ended and forgotten, the id is free; the window is not."""
    (held,) = engine.reserved("a", digest=LOCK)
    engine.run(deliver.ack(engine.scope, [Acked(held)]))
    (ref,) = engine.unchanged(engine.scheduling([engine.job("a", digest=LOCK)])).refs
    assert (ref.outcome, ref.id) == (Answer.KEPT, "a")
    engine.now += MINUTE
    assert engine.schedule([engine.job("a", digest=LOCK)]) == [Answer.CREATED]


def test_two_of_one_batch_and_a_lock_of_the_other_kind(engine: Engine) -> None:
    jobs = [engine.job("a", digest=LOCK), engine.job("b", digest=LOCK), engine.job("c", digest="d")]
    assert engine.schedule(jobs) == [Answer.CREATED, Answer.KEPT, Answer.CREATED]
    assert locks(engine) == ({LOCK: f"a {engine.now + MINUTE}", "d": "c"}, {"c": "d"})


def test_windows_that_are_over_are_swept_and_others_left(each_engine: Engine) -> None:
    engine = each_engine
    engine.schedule([engine.job("a", digest=LOCK), engine.job("b", digest=f"e.{HOUR}"), engine.job("c", digest="f")])
    rows = ["unknown", *engine.rows("unique")]
    assert engine.unchanged(lock.sweep(engine.scope, rows)) == 0
    engine.now += MINUTE
    assert engine.run(lock.sweep(engine.scope, rows)) == 1
    assert sorted(engine.rows("unique")) == [f"e.{HOUR}", "f"]
    assert engine.unchanged(lock.sweep(engine.scope, [])) == 0


def test_one_that_was_taken_again_meanwhile_is_not_swept(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest=LOCK)])
    engine.now += MINUTE
    engine.schedule([engine.job("b", digest=LOCK)])
    assert engine.unchanged(lock.sweep(engine.scope, [LOCK])) == 0


def test_rows_that_make_no_sense_stop_nobody(engine: Engine) -> None:
    """What somebody wrote by hand; the job is created, and the row put right."""
    for n, value in enumerate(["", " ", "x y", " 12"]):
        engine.client.hset(engine.keys.of("unique"), LOCK, value)
        with engine.damaged():
            assert engine.schedule([engine.job(f"j{n}", digest=LOCK)]) == [Answer.CREATED]
        assert engine.rows("unique")[LOCK] == f"j{n} {engine.now + MINUTE}"
