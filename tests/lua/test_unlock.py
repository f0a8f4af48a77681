"""unlock: a start, or a hand, frees the lock of a job; if it is still its own."""

from __future__ import annotations

from delayq.core.limiting import Unlocked
from delayq.core.states import Answer
from delayq.redis.calls import deliver, lock
from delayq.redis.calls.deliver import Acked, Released
from tests.support.engine import HOUR, Engine


def test_its_delivery_frees_it_once(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    assert engine.run(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FREED
    assert (engine.rows("unique"), engine.rows("locks")) == ({}, {})
    assert engine.unchanged(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FREE


def test_the_next_one_is_accepted_while_it_runs_and_keeps_its_lock_when_it_ends(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    engine.run(lock.unlock(engine.scope, "a", "d", held.entry))
    assert engine.schedule([engine.job("b", digest="d")]) == [Answer.CREATED]
    assert engine.unchanged(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FREE, "it is another's by now"
    engine.run(deliver.ack(engine.scope, [Acked(held)]))
    assert (engine.rows("unique"), engine.rows("locks")) == ({"d": "b"}, {"b": "d"})


def test_a_retry_of_a_job_that_started_does_not_take_it_again(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    engine.run(lock.unlock(engine.scope, "a", "d", held.entry))
    engine.run(deliver.release(engine.scope, [Released(held, HOUR)]))
    assert engine.rows("unique") == {}
    assert engine.schedule([engine.job("b", digest="d")]) == [Answer.CREATED]


def test_a_delivery_that_was_taken_back_frees_nothing(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    engine.run(deliver.hand_back(engine.scope, [held]))
    assert engine.unchanged(lock.unlock(engine.scope, "a", "d", held.entry)) is Unlocked.FENCED
    (again,) = engine.read()
    assert engine.run(lock.unlock(engine.scope, "a", "d", again.entry)) is Unlocked.FREED


def test_by_hand_wherever_the_job_is(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d"), engine.job("b", digest=f"w.{HOUR}")])
    assert engine.unchanged(lock.unlock(engine.scope, "other", "d")) is Unlocked.FREE
    assert engine.run(lock.unlock(engine.scope, "a", "d")) is Unlocked.FREED
    assert engine.run(lock.unlock(engine.scope, "b", f"w.{HOUR}")) is Unlocked.FREED
    assert (engine.rows("unique"), engine.rows("locks")) == ({}, {})
    assert engine.schedule([engine.job("c", digest="d"), engine.job("e", digest=f"w.{HOUR}")]) == [Answer.CREATED] * 2
