"""Unique keys: who owns a digest, what frees it, and what happens to those who come second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.core.envelope import fingerprint
from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Acked, Failed, Held, Released
from tests.support.engine import HOUR, Engine, envelope


def locks(engine: Engine) -> tuple[dict[str, str], dict[str, str]]:
    return engine.rows("unique"), engine.rows("locks")


HELD_BY_A = ({"d": "a"}, {"a": "d"})
FREE: tuple[dict[str, str], dict[str, str]] = ({}, {})


def test_the_first_owns_it(each_engine: Engine) -> None:
    each_engine.schedule([each_engine.job("a", digest="d")])
    assert locks(each_engine) == HELD_BY_A


@pytest.mark.parametrize(
    ("on_conflict", "answer"),
    [
        (OnConflict.KEEP, Answer.KEPT),
        (OnConflict.ERROR, Answer.CONFLICT),
        (OnConflict.REPLACE, Answer.KEPT),
        (OnConflict.POSTPONE, Answer.KEPT),
    ],
)
def test_the_second_changes_nothing_and_hears_who_owns_it(
    engine: Engine, on_conflict: OnConflict, answer: Answer
) -> None:
    engine.schedule([engine.job("a", digest="d")])
    scheduled, names = engine.changes(engine.scheduling([engine.job("b", digest="d")], on_conflict, token="t"))
    (ref,) = scheduled.refs
    assert (ref.outcome, ref.id, ref.state) == (answer, "a", State.SCHEDULED)
    assert ref.due_ms == engine.now + HOUR
    assert names <= {"once:t"}


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE])
def test_it_hears_where_the_owner_is(engine: Engine, on_conflict: OnConflict) -> None:
    engine.reserved("a", digest="d1")
    engine.ready("b", digest="d2")
    jobs = [engine.job("x", digest="d1"), engine.job("y", digest="d2")]
    refs = engine.unchanged(engine.scheduling(jobs, on_conflict)).refs
    assert [(ref.id, ref.state) for ref in refs] == [("a", State.RESERVED), ("b", State.READY)]


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE])
def test_two_of_one_batch(engine: Engine, on_conflict: OnConflict) -> None:
    jobs = [engine.job("a", digest="d"), engine.job("b", digest="d")]
    assert engine.schedule(jobs, on_conflict) == [Answer.CREATED, Answer.KEPT]
    assert engine.rows("jobs").keys() == {"a"}


def test_the_owner_itself_is_only_taken(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    assert engine.unchanged(engine.scheduling([engine.job("a", digest="d")])).refs[0].outcome == Answer.KEPT
    assert engine.schedule([engine.job("a", digest="d")], OnConflict.REPLACE) == [Answer.REPLACED]
    assert locks(engine) == HELD_BY_A


def test_replace_frees_the_old_one_and_takes_the_new(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d"), engine.job("b", digest="e")])
    assert engine.schedule([engine.job("a", digest="f")], OnConflict.REPLACE) == [Answer.REPLACED]
    assert locks(engine) == ({"f": "a", "e": "b"}, {"a": "f", "b": "e"})
    assert engine.schedule([engine.job("a")], OnConflict.REPLACE) == [Answer.REPLACED]
    assert locks(engine) == ({"e": "b"}, {"b": "e"})
    refs = engine.unchanged(engine.scheduling([engine.job("a", digest="e")], OnConflict.REPLACE)).refs
    assert (refs[0].outcome, refs[0].id) == (Answer.KEPT, "b")


def test_postpone_leaves_it_alone(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    assert engine.schedule([engine.job("a", digest="other")], OnConflict.POSTPONE) == [Answer.POSTPONED]
    assert locks(engine) == HELD_BY_A


@pytest.mark.parametrize(
    "settle",
    [
        lambda e, held: deliver.ack(e.scope, [Acked(held)]),
        lambda e, held: deliver.ack(e.scope, [Acked(held, HOUR)]),
        lambda e, held: deliver.fail(e.scope, [Failed(held, b"", b"{}")]),
    ],
    ids=["ack", "ack with retention", "fail"],
)
def test_the_end_frees_it(engine: Engine, settle: Callable[[Engine, Held], Call[list[bool]]]) -> None:
    (held,) = engine.reserved("a", digest="d")
    assert engine.run(settle(engine, held)) == [True]
    assert locks(engine) == FREE
    assert engine.schedule([engine.job("b", digest="d")]) == [Answer.CREATED]


@pytest.mark.parametrize(
    "move",
    [
        lambda e, held: deliver.release(e.scope, [Released(held, 5)]),
        lambda e, held: deliver.hand_back(e.scope, [held]),
    ],
    ids=["release", "hand_back"],
)
def test_a_retry_keeps_it(engine: Engine, move: Callable[[Engine, Held], Call[list[bool]]]) -> None:
    (held,) = engine.reserved("a", digest="d")
    assert engine.run(move(engine, held)) == [True]
    assert locks(engine) == HELD_BY_A


def test_so_does_a_vanished_worker_until_the_job_is_given_up(engine: Engine) -> None:
    engine.reserved("a", digest="d")
    engine.calm()
    for times in range(1, 5):
        engine.rest([engine.held("a").entry], 60_000)
        engine.run(deliver.reclaim(engine.scope))
        assert locks(engine) == (HELD_BY_A if times < 4 else FREE)
        if times < 4:
            engine.read()


def test_cancel_and_clear_free_it(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d"), engine.job("b", digest="e"), engine.job("c", "+0", digest="f")])
    assert engine.run(produce.cancel(engine.scope, "a", running=False, token="t")) == Answer.CANCELLED
    assert locks(engine) == ({"e": "b", "f": "c"}, {"b": "e", "c": "f"})
    assert engine.run(inspect.clear(engine.scope)) == 2
    assert locks(engine) == FREE


def test_a_lock_that_is_somebody_elses_by_now_is_left_alone(engine: Engine) -> None:
    """Only damage brings two rows for one digest; then each frees what is its own."""
    engine.reserved("a", digest="d")
    with engine.damaged():
        engine.client.hset(engine.keys.of("unique"), "d", "b")
        engine.run(deliver.ack(engine.scope, [Acked(engine.held("a"))]))
        assert locks(engine) == ({"d": "b"}, {})
        engine.client.hdel(engine.keys.of("unique"), "d")


@pytest.mark.parametrize("verb", ["forget", "prune"])
@pytest.mark.parametrize("owner", ["a", "b"])
def test_what_damage_left_locked_goes_with_the_job_if_it_is_still_its_own(
    engine: Engine, verb: str, owner: str
) -> None:
    engine.failed("a")
    with engine.damaged():
        engine.client.hset(engine.keys.of("locks"), "a", "d")
        engine.client.hset(engine.keys.of("unique"), "d", owner)
        if verb == "forget":
            engine.run(produce.forget(engine.scope, ["a"]))
        else:
            assert engine.run(deliver.prune(engine.scope, 0)).failed == 1
        assert locks(engine) == ({} if owner == "a" else {"d": "b"}, {})
        engine.client.flushall()


def retry(engine: Engine, job_id: str, digest: str) -> produce.Outcome:
    raw = engine.client.hget(engine.keys.of("jobs"), job_id)
    return engine.run(produce.retry(engine.scope, job_id, fingerprint(raw), envelope(job_id), digest))


def test_retry_takes_it_again_or_answers_conflict(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    engine.run(deliver.fail(engine.scope, [Failed(held, b"", b"{}")]))
    engine.schedule([engine.job("b", digest="d")])
    assert retry(engine, "a", "d") == (Answer.CONFLICT, None, "b")
    assert engine.state("a") == State.FAILED
    engine.run(produce.cancel(engine.scope, "b", running=False, token="t"))
    assert retry(engine, "a", "d").answer == Answer.SCHEDULED
    assert locks(engine) == HELD_BY_A


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE])
def test_an_owner_that_is_nowhere_owns_nothing(engine: Engine, on_conflict: OnConflict) -> None:
    engine.client.hset(engine.keys.of("unique"), "d", "ghost")
    assert engine.schedule([engine.job("a", digest="d")], on_conflict) == [Answer.CREATED]
    assert locks(engine) == HELD_BY_A


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE])
@pytest.mark.parametrize("end", ["failed", "completed"])
def test_nor_does_one_that_is_over(engine: Engine, on_conflict: OnConflict, end: str) -> None:
    """Somebody deleted `locks`, so nothing freed the digest when its owner ended."""
    (held,) = engine.reserved("old", digest="d")
    with engine.damaged():
        engine.client.delete(engine.keys.of("locks"))
        if end == "failed":
            engine.run(deliver.fail(engine.scope, [Failed(held, b"", b"{}")]))
        else:
            engine.run(deliver.ack(engine.scope, [Acked(held, HOUR)]))
        assert engine.schedule([engine.job("a", digest="d")], on_conflict) == [Answer.CREATED]
    assert locks(engine) == HELD_BY_A


def test_nor_does_it_stop_a_retry(engine: Engine) -> None:
    engine.failed("a")
    engine.client.hset(engine.keys.of("unique"), "d", "ghost")
    assert retry_damaged(engine).answer == Answer.SCHEDULED
    assert locks(engine) == HELD_BY_A


def retry_damaged(engine: Engine) -> produce.Outcome:
    with engine.damaged():
        return retry(engine, "a", "d")
