"""stats and upcoming: how much of a queue is in which state, and what falls due when."""

from __future__ import annotations

from delayq.core.views import QueueStats
from delayq.redis.calls import deliver, inspect
from delayq.redis.keys import GROUP
from tests.support.engine import HOUR, OURS, START, Engine


def stats(engine: Engine) -> QueueStats:
    return engine.unchanged(inspect.stats(engine.scope))


def counts(found: QueueStats) -> tuple[int, int, int, int, int]:
    return (found.scheduled, found.ready, found.reserved, found.failed, found.completed)


def test_an_unknown_queue_is_all_zero(each_engine: Engine) -> None:
    found = stats(each_engine)
    assert counts(found) == (0, 0, 0, 0, 0)
    assert (found.paused, found.overdue_oldest_ms, found.lease_ms, found.mover_tick_ms) == (False, 0, 0, 0)
    assert found.now_ms == START
    assert set(found.counters.values()) == {0}


def test_the_states_add_up(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("f")
    engine.completed("c1", "c2")
    engine.reserved("r1", "r2", "r3")
    engine.ready("y1", "y2")
    engine.schedule([engine.job(name) for name in ("s1", "s2", "s3", "s4")])
    assert counts(stats(engine)) == (4, 2, 3, 1, 2)


def test_the_counters(engine: Engine) -> None:
    engine.failed("f")
    (one, two) = engine.reserved("a", "b")
    engine.run(deliver.ack(engine.scope, [deliver.Acked(one)]))
    engine.run(deliver.release(engine.scope, [deliver.Released(two, 0)]))
    engine.run(deliver.promote(engine.scope))
    engine.client.hset(engine.keys.meta, "acked_total", "many")
    counters = stats(engine).counters
    assert counters == {
        "scheduled_total": 3, "promoted_total": 1, "acked_total": 0, "released_total": 1, "failed_total": 1,
        "cancelled_total": 0, "reclaimed_total": 0, "handed_back_total": 0,
    }  # fmt: skip


def test_the_oldest_overdue_is_the_sets_or_the_streams(engine: Engine) -> None:
    engine.ready("y")
    engine.schedule([engine.job("s", "+10")])
    engine.now += 5
    assert stats(engine).overdue_oldest_ms == 5
    engine.read()
    assert stats(engine).overdue_oldest_ms == 0
    engine.now += 8
    assert stats(engine).overdue_oldest_ms == 3


def test_a_pause_is_told_until_it_has_run_out(engine: Engine) -> None:
    engine.run(inspect.pause(engine.scope, 5_000))
    assert stats(engine).paused_until_ms == START + 5_000
    engine.now += 5_000
    assert not stats(engine).paused
    engine.run(inspect.pause(engine.scope, 0))
    assert (stats(engine).paused_until_ms, stats(engine).paused) == (0, True)


def test_the_movers_last_tick(engine: Engine) -> None:
    engine.run(deliver.promote(engine.scope))
    assert stats(engine).mover_tick_ms == START
    engine.client.delete(engine.keys.meta)


def test_cancelled_ready_jobs_leave_the_numbers_right(engine: Engine) -> None:
    """The group's own lag turns nil here; ours is counted."""
    engine.ready("a", "b", "c")
    engine.client.xdel(engine.keys.stream, engine.held("b").entry)
    engine.client.hdel(engine.keys.of("entries"), "b")
    engine.client.hdel(engine.keys.of("jobs"), "b")
    assert counts(stats(engine))[1:3] == (2, 0)


def test_pending_rows_of_deleted_entries_make_nothing_negative(engine: Engine) -> None:
    held = engine.reserved("a", "b", "c")
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, *[one.entry for one in held[:2]])
        assert counts(stats(engine))[1:3] == (0, 1)
        engine.client.xtrim(engine.keys.stream, maxlen=0, approximate=False)
        assert counts(stats(engine))[1:3] == (0, 0)
        assert len(engine.pending()) == 3
        engine.client.flushall()


def test_without_its_group_nothing_is_ready(engine: Engine) -> None:
    engine.ready("a", "b")
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    assert counts(stats(engine))[1:3] == (0, 2)


def test_ids_far_in_the_future_are_no_times(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    engine.client.execute_command("XSETID", engine.keys.stream, "99999999999999-7")
    engine.ready("a")
    engine.now += 5
    assert stats(engine).overdue_oldest_ms == 5
    engine.read(OURS)
    assert counts(stats(engine))[1:3] == (0, 1)


def test_upcoming_counts_each_job_once(each_engine: Engine) -> None:
    engine = each_engine
    for name, due in {"past": -5, "now": 0, "a": 1, "b": 10, "c": 11, "d": 20, "e": 30, "f": 31, "far": HOUR}.items():
        engine.client.zadd(engine.keys.of("scheduled"), {name: START + due})
        engine.client.hset(engine.keys.of("jobs"), name, "{}")
    found = engine.unchanged(inspect.upcoming(engine.scope, 10, 3))
    assert (found.now_ms, found.span_ms, found.overdue, found.counts, found.later) == (START, 10, 2, (2, 2, 1), 2)


def test_upcoming_of_an_unknown_queue(engine: Engine) -> None:
    found = engine.unchanged(inspect.upcoming(engine.scope, HOUR, 500))
    assert (found.overdue, found.counts, found.later) == (0, (0,) * 500, 0)
