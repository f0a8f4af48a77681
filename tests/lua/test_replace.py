"""replace: a taken id gets a new due time, and on request a new payload; a free one is made."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver
from tests.support.engine import HOUR, START, Engine

BOTH = pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.POSTPONE])


@BOTH
def test_an_absent_id_is_created(each_engine: Engine, on_conflict: OnConflict) -> None:
    engine, job = each_engine, each_engine.job("a", digest="d")
    scheduled, names = engine.changes(engine.scheduling([job], on_conflict))
    assert (scheduled.refs[0].outcome, scheduled.new_queue) == (Answer.CREATED, True)
    assert names == {"scheduled", "jobs", "unique", "locks", "meta"}
    assert engine.scores("scheduled") == {"a": START + HOUR}
    assert engine.rows("jobs") == {"a": job.envelope.decode()}
    assert engine.rows("meta") == {"schema": "1", "lease_ms": "30000", "shards": "1", "scheduled_total": "1"}


def test_scheduled_is_replaced(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    fresh = engine.job("a", "+5", data=b"[1]", digest="d")
    scheduled, names = engine.changes(engine.scheduling([fresh], OnConflict.REPLACE, token="t"))
    assert (scheduled.refs[0].outcome, scheduled.refs[0].due_ms) == (Answer.REPLACED, START + 5)
    assert names == {"scheduled", "jobs", "once:t"}
    assert engine.rows("jobs") == {"a": fresh.envelope.decode()}


def test_scheduled_is_postponed_and_keeps_its_payload(engine: Engine) -> None:
    old = engine.job("a")
    engine.schedule([old])
    scheduled, names = engine.changes(
        engine.scheduling([engine.job("a", f"+{2 * HOUR}", data=b"[1]")], OnConflict.POSTPONE)
    )
    assert (scheduled.refs[0].outcome, scheduled.refs[0].due_ms) == (Answer.POSTPONED, START + 2 * HOUR)
    assert names == {"scheduled"}
    assert engine.rows("jobs") == {"a": old.envelope.decode()}


@BOTH
def test_ready_goes_back_to_the_set(engine: Engine, on_conflict: OnConflict) -> None:
    engine.ready("a", "b")
    (answer, names) = engine.changes(engine.scheduling([engine.job("a")], on_conflict))
    assert answer.refs[0].outcome in (Answer.REPLACED, Answer.POSTPONED)
    assert {"scheduled", "stream", "entries"} <= names <= {"scheduled", "stream", "entries", "jobs"}
    assert (engine.in_stream(), engine.scores("scheduled")) == (["b"], {"a": START + HOUR})
    assert [held.id for held in engine.read()] == ["b"]


@BOTH
def test_running_is_refused(engine: Engine, on_conflict: OnConflict) -> None:
    engine.reserved("a")
    (ref,) = engine.unchanged(engine.scheduling([engine.job("a")], on_conflict)).refs
    assert (ref.outcome, ref.state, ref.due_ms) == (Answer.RUNNING, State.RESERVED, None)


@pytest.mark.parametrize("state", [State.FAILED, State.COMPLETED])
def test_what_is_over_is_not_postponed(engine: Engine, state: State) -> None:
    engine.put("a", state)
    (ref,) = engine.unchanged(engine.scheduling([engine.job("a")], OnConflict.POSTPONE)).refs
    assert (ref.outcome, ref.state) == (Answer.KEPT, state)


def test_a_former_life_leaves_nothing(engine: Engine) -> None:
    """A retried job that is replaced while it waits: no failure, no recovery count."""
    (held,) = engine.reserved("a")
    engine.run(deliver.release(engine.scope, [deliver.Released(held, HOUR, b"", b'{"type":"E","message":"m"}')]))
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    engine.schedule([engine.job("a")], OnConflict.REPLACE)
    assert (engine.rows("errors"), engine.rows("recoveries")) == ({}, {})


def test_postponing_keeps_the_former_life(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.release(engine.scope, [deliver.Released(held, HOUR, b"", b"{}")]))
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    engine.schedule([engine.job("a")], OnConflict.POSTPONE)
    assert (engine.rows("errors"), engine.rows("recoveries")) == ({"a": "{}"}, {"a": "2"})


def test_the_same_id_twice_in_a_batch(engine: Engine) -> None:
    jobs = [engine.job("a", "+5", data=b"1"), engine.job("a", "+9", data=b"2")]
    assert engine.schedule(jobs, OnConflict.REPLACE) == [Answer.CREATED, Answer.REPLACED]
    assert engine.scores("scheduled") == {"a": START + 9}
    assert engine.rows("jobs") == {"a": jobs[1].envelope.decode()}


def test_it_never_appends_to_the_stream(engine: Engine) -> None:
    """Due now, it waits in the set for the mover: one way into the stream is enough here."""
    (ref,) = engine.run(engine.scheduling([engine.job("a", "+0")], OnConflict.REPLACE)).refs
    assert (ref.state, ref.due_ms, engine.in_stream()) == (State.SCHEDULED, START, [])
    assert engine.run(deliver.promote(engine.scope)).moved == 1


def test_a_resend_answers_as_the_first_time(engine: Engine) -> None:
    call = engine.scheduling([engine.job("a", "+0")], OnConflict.REPLACE, token="t")
    assert engine.run(call).refs[0].outcome == Answer.CREATED
    engine.run(deliver.promote(engine.scope))
    engine.read()
    assert engine.unchanged(call).refs[0].outcome == Answer.CREATED


def test_a_payload_that_was_lost_is_made_anew(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert engine.schedule([engine.job("a", "+5")], OnConflict.POSTPONE) == [Answer.CREATED]
    assert engine.scores("scheduled") == {"a": START + 5}


@pytest.mark.parametrize("word", ["chain", "batch"])
def test_what_follows_a_job_that_gives_way_hears_that_it_will_not_run(engine: Engine, word: str) -> None:
    old = engine.job("a")
    linked = old.envelope[:-1] + b',"%s":"b"}' % word.encode()
    engine.schedule([replace(old, envelope=linked), engine.job("plain")])
    fresh = [engine.job("a", data=b"[1]"), engine.job("plain", data=b"[1]")]
    engine.run(engine.scheduling(fresh, OnConflict.POSTPONE))
    assert engine.client.xlen(engine.keys.of("outbox")) == 0
    engine.run(engine.scheduling(fresh, OnConflict.REPLACE))
    ((_, fields),) = engine.client.xrange(engine.keys.of("outbox"))
    assert fields == {b"ended": b"cancelled", b"job": linked}
    engine.run(engine.scheduling(fresh, OnConflict.REPLACE))
    assert engine.client.xlen(engine.keys.of("outbox")) == 1


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.POSTPONE])
def test_a_job_that_it_makes_counts_as_scheduled_and_one_that_waits_does_not(
    engine: Engine, on_conflict: OnConflict
) -> None:
    def total() -> str:
        return engine.rows("meta").get("scheduled_total", "0")

    for _ in range(2):
        engine.run(engine.scheduling([engine.job("a"), engine.job("b")], on_conflict))
        assert total() == "2"
    engine.run(engine.scheduling([engine.job("a"), engine.job("c")], on_conflict))
    assert total() == "3"


@pytest.mark.parametrize("place", ["failed", "completed"])
def test_a_job_in_the_place_of_one_that_is_over_counts_as_scheduled(engine: Engine, place: str) -> None:
    getattr(engine, place)("a")
    before = int(engine.rows("meta")["scheduled_total"])
    engine.run(engine.scheduling([engine.job("a")], OnConflict.REPLACE))
    assert int(engine.rows("meta")["scheduled_total"]) == before + 1
