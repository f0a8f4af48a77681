"""promote: what is due goes to the stream, oldest first, and the mover hears when to come again."""

from __future__ import annotations

import pytest

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.activity import BOUNDS_MS, PROMOTED_LATE, Spread, spread_of
from delayq.core.states import OnConflict, State
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Promoted, Released
from tests.support.engine import HOUR, START, Engine


def promote(engine: Engine, limit: int = 500) -> Promoted:
    return engine.run(deliver.promote(engine.scope, limit))


def test_the_due_one_moves(each_engine: Engine) -> None:
    engine, job = each_engine, each_engine.job("a", "+10")
    engine.schedule([job, engine.job("b", "+20")])
    engine.now += 10
    promoted, names = engine.changes(deliver.promote(engine.scope))
    assert promoted == Promoted(1, 0, 10_000)
    assert names == {"scheduled", "stream", "entries", "meta"}
    ((entry, fields),) = engine.entries()
    assert fields == {"id": "a", "job": job.envelope.decode(), "due": str(START + 10), "recoveries": "0"}
    assert engine.rows("entries") == {"a": entry}
    assert engine.scores("scheduled") == {"b": START + 20}
    assert engine.rows("meta")["promoted_total"] == "1"
    assert engine.rows("meta")["mover_tick"] == str(engine.now)


def test_how_late_it_was_is_counted_by_the_bounds_of_activity(each_engine: Engine) -> None:
    engine = each_engine
    engine.schedule([engine.job(f"j{n}", f"+{n}") for n in (1, 2, 50, 60)])
    engine.now += 52
    promote(engine, 2)  # 51 and 50 ms late
    promote(engine)  # 2 ms
    engine.now += 3_600_009
    promote(engine)  # an hour and a millisecond
    found = promoted_late(engine)
    counted = {BOUNDS_MS[n] if n < len(BOUNDS_MS) else "more": count for n, count in enumerate(found.counts) if count}
    assert counted == {2.0: 1, 50.0: 1, 100.0: 1, "more": 1}
    assert found.sum_ms == 51 + 50 + 2 + 3_600_001


@pytest.mark.parametrize("damage", ["", "x", "1 2 3", "-" * 300])
@pytest.mark.parametrize("field", ["promoted_late_1", "promoted_late_us"])
def test_a_damaged_count_keeps_no_job_from_moving(engine: Engine, field: str, damage: str) -> None:
    engine.schedule([engine.job("a", "+1")])
    engine.client.hset(engine.scope.keys.of("meta"), field, damage)
    engine.now += 1
    assert promote(engine) == Promoted(1, 0, -1)
    assert promoted_late(engine).count == (field != "promoted_late_1")


def promoted_late(engine: Engine) -> Spread:
    rows = engine.rows("meta")
    return spread_of([rows.get(name) for name in PROMOTED_LATE])


def test_not_a_millisecond_early(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+10")])
    engine.now += 9
    assert promote(engine) == Promoted(0, 0, 1_000)
    assert engine.state("a") == State.SCHEDULED


def test_oldest_first_and_equal_times_by_id(engine: Engine) -> None:
    engine.schedule(
        [engine.job(name, when) for name, when in [("c", "+7"), ("b", "+9"), ("z", "+5"), ("a", "+9"), ("B", "+9")]]
    )
    engine.now += 10
    assert promote(engine) == Promoted(5, 0, -1)
    assert engine.in_stream() == ["z", "c", "B", "a", "b"]


def test_a_batch_is_as_long_as_it_may_be(engine: Engine) -> None:
    engine.schedule([engine.job(f"j{n}", "+1") for n in range(7)])
    engine.now += 1
    assert [promote(engine, 3) for _ in range(4)] == [
        Promoted(3, 0, 0),
        Promoted(3, 0, 0),
        Promoted(1, 0, -1),
        Promoted(0, 0, -1),
    ]
    assert engine.in_stream() == [f"j{n}" for n in range(7)]


def test_batches_longer_than_a_chunk_of_payloads(engine: Engine) -> None:
    names = [f"j{n:03}" for n in range(100)]
    engine.schedule([engine.job(name, "+1") for name in names])
    engine.now += 1
    assert promote(engine) == Promoted(100, 0, -1)
    assert engine.in_stream() == names


def test_it_stops_at_the_high_water_mark(engine: Engine) -> None:
    narrow = engine.with_options(high_water=2)
    narrow.schedule([narrow.job(name, "+1") for name in "abc"])
    narrow.now += 1
    assert [promote(narrow), promote(narrow)] == [Promoted(2, 0, 0), Promoted(0, 0, -2)]
    (first, _) = narrow.read()
    narrow.run(deliver.ack(narrow.scope, [deliver.Acked(first)]))
    assert promote(narrow) == Promoted(1, 0, -1)


def test_below_the_mark_by_less_than_nothing(engine: Engine) -> None:
    engine.ready("a", "b", "c")
    engine.schedule([engine.job("d", "+1")])
    engine.now += 1
    assert promote(engine.with_options(high_water=1)) == Promoted(0, 0, -2)


def test_a_paused_queue_rests_and_its_mover_is_seen_all_the_same(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+1")])
    engine.run(inspect.pause(engine.scope, 5_000))
    engine.now += 10
    paused, names = engine.changes(deliver.promote(engine.scope))
    assert (paused, names) == (Promoted(0, 0, -3), {"meta"})
    assert engine.rows("meta")["mover_tick"] == str(engine.now)
    engine.now += 5_000
    assert promote(engine) == Promoted(1, 0, -1)


def test_an_empty_queue_has_nothing_to_wait_for(engine: Engine) -> None:
    promoted, names = engine.changes(deliver.promote(engine.scope))
    assert (promoted, names) == (Promoted(0, 0, -1), {"meta"})
    engine.client.delete(engine.keys.meta)


def test_by_the_servers_clock_it_waits_for_microseconds(engine: Engine) -> None:
    real = Scope(engine.options, engine.queue)
    seconds, micros = engine.client.time()
    engine.run(produce.schedule(real, [engine.job("a", str(seconds * 1000 + 60_000))], OnConflict.KEEP, "t"))
    before = seconds * 1_000_000 + micros
    wait = engine.run(deliver.promote(real)).wait_us
    seconds_after, micros_after = engine.client.time()
    assert seconds * 1_000_000 + 60_000_000 - (seconds_after * 1_000_000 + micros_after) <= wait
    assert wait <= seconds * 1_000_000 + 60_000_000 - before


def test_an_entry_tells_how_often_its_worker_vanished(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.release(engine.scope, [Released(held, 0)]))
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    promote(engine)
    assert engine.entries()[0][1]["recoveries"] == "2"


def test_a_lost_payload_becomes_a_failed_job_that_says_so(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    first = failures.encode(failures.Failure(type="ValueError", message="the first error"))
    engine.run(deliver.release(engine.scope, [Released(held, 0, b"", first)]))
    engine.schedule([engine.job("b", "+1")])
    engine.now += 1
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert promote(engine) == Promoted(1, 1, -1)
    assert (engine.state("a"), engine.state("b")) == (State.FAILED, State.READY)
    assert engine.scores("failed") == {"a": engine.now}
    stub = envelopes.decode(engine.client.hget(engine.keys.of("jobs"), "a"))
    assert (stub.id, stub.name, stub.queue) == ("a", "delayq.lost", "orders")
    failure = failures.decode(engine.rows("errors")["a"].encode())
    assert failure is not None
    assert (failure.type, failure.at_ms) == ("PayloadLost", engine.now)
    assert [past.message for past in failure.history] == ["the first error"]
    assert (engine.rows("unique"), engine.rows("locks")) == ({}, {})
    assert engine.rows("meta")["failed_total"] == "1"


def test_a_stub_is_json_whatever_the_id(engine: Engine) -> None:
    engine.client.zadd(engine.keys.of("scheduled"), {'a"\\b': 1})
    with engine.damaged():
        assert promote(engine) == Promoted(0, 1, -1)
    assert envelopes.decode(engine.client.hget(engine.keys.of("jobs"), 'a"\\b')).id == 'a"\\b'


def test_a_job_that_somebody_put_in_the_set_as_well_gets_no_second_entry(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.zadd(engine.keys.of("scheduled"), {"a": 1})
        assert promote(engine) == Promoted(0, 0, -1)
    assert engine.rows("entries") == {"a": held.entry}


def test_a_far_off_head_is_told_exactly(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    assert promote(engine) == Promoted(0, 0, HOUR * 1000)


@pytest.mark.parametrize("score", [START + 0.5, START + 1.25])
def test_a_score_with_a_fraction_does_not_make_the_mover_turn(engine: Engine, score: float) -> None:
    engine.schedule([engine.job("a")])
    engine.client.zadd(engine.keys.of("scheduled"), {"a": score})
    assert promote(engine).wait_us == int((score - START) * 1000)
    engine.now += 2
    assert promote(engine) == Promoted(1, 0, -1)


BEYOND = ["+inf", "1800000000000000000", "9300000000000000"]
"""Never, epoch nanoseconds, and the first that no longer fits when it is told in microseconds."""


@pytest.mark.parametrize("text", BEYOND)
def test_a_time_beyond_all_calendars_is_never_due_and_the_wait_stays_a_number(each_engine: Engine, text: str) -> None:
    engine = each_engine
    engine.schedule([engine.job("odd"), engine.job("a", "+1")])
    engine.client.execute_command("ZADD", engine.keys.of("scheduled"), "XX", text, "odd")
    engine.now += 1
    promoted = promote(engine)
    assert promoted == Promoted(1, 0, 2**53 - 1)
    assert engine.client.zcard(engine.keys.of("scheduled")) == 1


@pytest.mark.parametrize("text", ["-inf", "-5", "-1e300"])
def test_a_time_before_1970_is_due_now_and_spoils_no_count(each_engine: Engine, text: str) -> None:
    engine = each_engine
    engine.schedule([engine.job("odd"), engine.job("a", "+1")])
    engine.client.execute_command("ZADD", engine.keys.of("scheduled"), "XX", text, "odd")
    engine.now += 1
    assert engine.run(inspect.stats(engine.scope)).overdue_oldest_ms == engine.now
    assert promote(engine) == Promoted(2, 0, -1)
    assert [fields["due"] for _, fields in engine.entries()] == [str(START + 1)] * 2
    assert promoted_late(engine).count == 2
    assert promoted_late(engine).sum_ms == 0


def test_what_is_run_now_was_due_no_earlier_than_1970(engine: Engine) -> None:
    engine.ready("before")
    engine.schedule([engine.job("odd")])
    engine.client.execute_command("ZADD", engine.keys.of("scheduled"), "XX", "-inf", "odd")
    assert engine.run(produce.run_now(engine.scope, "odd")).due_ms == START
