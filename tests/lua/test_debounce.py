"""debounce: the last one wins, what has been delivered is left alone, and nothing is lost."""

from __future__ import annotations

import pytest

from delayq.core.debounce import Quiet
from delayq.core.limiting import Unlocked
from delayq.core.spec import Prepared
from delayq.core.states import Answer, State
from delayq.core.views import JobRef
from delayq.redis.calls import deliver, lock, produce
from tests.support.engine import QUEUE, Engine, envelope

WAIT, MOST = 30_000, 100_000


def debounce(engine: Engine, job_id: str, most: int = MOST, data: bytes = b"{}") -> JobRef:
    quiet = Quiet(WAIT, most)
    raw = envelope(job_id, unique="d.start", data=data)
    job = Prepared(job_id, raw, "+0", "d", "order.close", QUEUE, False, quiet)
    (ref,) = engine.run(produce.debounce(engine.scope, job, quiet, f"token-{job_id}-{engine.now}")).refs
    return ref


def promoted(engine: Engine) -> None:
    engine.run(deliver.promote(engine.scope))


def test_the_last_one_wins(each_engine: Engine) -> None:
    engine = each_engine
    first = debounce(engine, "a")
    assert (first.outcome, first.due_ms, first.instead_of) == (Answer.CREATED, engine.now + WAIT, "")
    engine.now += 10_000
    second = debounce(engine, "b", data=b"[2]")
    assert (second.outcome, second.id, second.instead_of) == (Answer.DEBOUNCED, "b", "a")
    assert engine.scores("scheduled") == {"b": engine.now + WAIT}
    assert engine.rows("jobs") == {"b": envelope("b", unique="d.start", data=b"[2]").decode()}
    assert (engine.rows("unique")["d"], engine.rows("locks")) == ("b", {"b": "d"})


def test_it_waits_at_most_so_long_after_the_first(engine: Engine) -> None:
    latest = engine.now + MOST
    for n in range(5):
        ref = debounce(engine, f"j{n}")
        assert ref.due_ms == min(engine.now + WAIT, latest)
        engine.now += 25_000
    assert engine.now > latest
    assert debounce(engine, "late").due_ms == engine.now, "it is due; nobody has come for it yet"


def test_without_a_limit_as_long_as_more_come(engine: Engine) -> None:
    for n in range(20):
        assert debounce(engine, f"j{n}", most=0).due_ms == engine.now + WAIT
        engine.now += WAIT - 1
    assert list(engine.rows("unique")) == ["d"]


def test_one_that_is_ready_and_not_delivered_is_taken_out_of_the_stream(engine: Engine) -> None:
    debounce(engine, "a")
    engine.now += WAIT
    promoted(engine)
    assert engine.state("a") is State.READY
    assert debounce(engine, "b").instead_of == "a"
    assert (engine.in_stream(), engine.state("b")) == ([], State.SCHEDULED)


@pytest.mark.parametrize("started", [False, True])
def test_one_that_was_delivered_runs_and_the_next_begins_a_new_wait(engine: Engine, started: bool) -> None:
    debounce(engine, "a")
    engine.now += WAIT
    promoted(engine)
    (held,) = engine.read()
    if started:
        assert engine.run(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FREED
    ref = debounce(engine, "b")
    assert (ref.outcome, ref.due_ms, ref.instead_of) == (Answer.CREATED, engine.now + WAIT, "")
    assert engine.rows("unique")["d.most"] == f"b {engine.now + MOST}", "the limit counts anew"
    assert engine.unchanged(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FREE
    assert engine.run(deliver.ack(engine.scope, [deliver.Acked(held)])) == [True]
    assert (engine.state("b"), engine.rows("unique")["d"]) == (State.SCHEDULED, "b")


def test_after_its_end_or_a_cancel_it_begins_anew(engine: Engine) -> None:
    debounce(engine, "a")
    engine.run(produce.cancel(engine.scope, "a", running=False, token="c"))
    engine.now += WAIT
    ref = debounce(engine, "b")
    assert (ref.outcome, ref.due_ms) == (Answer.CREATED, engine.now + WAIT)
    assert engine.rows("unique") == {"d": "b", "d.most": f"b {engine.now + MOST}"}


def test_a_limit_that_was_swept_is_over(engine: Engine) -> None:
    """The queue stood still for longer than that, and the janitor did not."""
    debounce(engine, "a")
    engine.now += MOST
    assert engine.run(lock.sweep(engine.scope, ["d.most"])) == 1
    assert debounce(engine, "b").due_ms == engine.now


def test_an_id_that_is_taken_is_left_alone(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    before = engine.rows("jobs")
    assert debounce(engine, "a").outcome is Answer.KEPT
    assert (engine.rows("jobs"), engine.rows("unique")) == (before, {})


def test_many_at_once_one_call_each(engine: Engine) -> None:
    quiet = Quiet(WAIT, 0)
    jobs = [engine.job("x"), engine.job("y")]
    jobs[1:1] = [Prepared(i, envelope(i), "+0", "d", "n", QUEUE, False, quiet) for i in ("a", "b")]
    assert [[job.id for job in chunk] for chunk in produce.chunks(jobs)] == [["x"], ["a"], ["b"], ["y"]]
