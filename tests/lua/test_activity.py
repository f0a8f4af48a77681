"""tally and activity: what happened, minute by minute."""

from __future__ import annotations

import pytest
import redis

from delayq.core.activity import DAY_MINUTES, DAY_MS, HISTORY_DAYS, MINUTE_MS, PARTS, not_tallied, row_of, span_of
from delayq.redis.calls import activity, deliver, produce
from delayq.redis.calls.activity import Minutes
from tests.support.engine import START, Engine

NOW = START // MINUTE_MS


def looked(engine: Engine, minutes: int = 1) -> Minutes:
    return engine.unchanged(activity.activity(engine.scope, minutes))


def rows(engine: Engine, minutes: int = 1) -> dict[int, dict[str, float]]:
    found = {minute: dict(row_of(raw, minute)) for minute, raw in looked(engine, minutes).rows.items()}
    return {minute: row for minute, row in found.items() if row}


def tally(engine: Engine, **measures: float) -> bool:
    return engine.run(activity.tally(engine.scope, measures))


def test_nothing_happened(each_engine: Engine) -> None:
    engine = each_engine
    assert engine.changes(activity.tally(engine.scope, {})) == (True, set())
    assert looked(engine, DAY_MINUTES) == Minutes(START, "", (0,) * 8, {})


def test_the_steps_of_the_counters_are_counted_once_whoever_asks(each_engine: Engine) -> None:
    engine = each_engine
    engine.schedule([engine.job("a", "+0"), engine.job("b"), engine.job("c")])
    engine.run(produce.cancel(engine.scope, "b", running=False, token="t"))
    (held,) = engine.read()
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    assert engine.changes(activity.tally(engine.scope, {})) == (True, {"activity", "history", "meta"})
    assert rows(engine) == {NOW: {"minute": NOW, "scheduled": 3, "cancelled": 1, "acked": 1}}
    assert engine.unchanged(activity.tally(engine.scope, {}))
    engine.schedule([engine.job("d")])
    tally(engine)
    assert rows(engine)[NOW]["scheduled"] == 4


def test_measures_are_added_up(engine: Engine) -> None:
    tally(engine, **{"late:3": 2, "late_ms": 7.25})
    tally(engine, **{"late:3": 1, "late:18": 1, "late_ms": 0.5})
    assert rows(engine) == {NOW: {"minute": NOW, "late:3": 3, "late:18": 1, "late_ms": 7.75}}


def test_each_minute_has_its_row_and_the_day_after_writes_over_it(engine: Engine) -> None:
    tally(engine, took_ms=1)
    engine.now += MINUTE_MS
    tally(engine, took_ms=2)
    assert {minute: row["took_ms"] for minute, row in rows(engine, 5).items()} == {NOW: 1, NOW + 1: 2}
    assert list(rows(engine)) == [NOW + 1]
    engine.now = START + DAY_MINUTES * MINUTE_MS
    tally(engine, took_ms=4)
    assert rows(engine)[NOW + DAY_MINUTES] == {"minute": NOW + DAY_MINUTES, "took_ms": 4}
    assert engine.client.hlen(engine.keys.of("activity")) == 2 + 1
    assert row_of(engine.client.hget(engine.keys.of("activity"), "sums")) == {"took_ms": 7}


def test_a_whole_day_and_its_size(engine: Engine) -> None:
    measures = {f"{name}:{n}": 1_000.0 for name in ("late", "took") for n in range(4)}
    for _ in range(DAY_MINUTES + 10):
        tally(engine, **measures)
        engine.now += MINUTE_MS
    key = engine.keys.of("activity")
    assert engine.client.hlen(key) == DAY_MINUTES + 1
    assert engine.client.memory_usage(key) < 600_000
    assert len(rows(engine, DAY_MINUTES)) == DAY_MINUTES - 1  # the present minute is empty
    assert 0 < engine.client.pttl(key) <= 90_000_000


def days(engine: Engine) -> dict[int, dict[str, float]]:
    found = [dict(row_of(raw)) for raw in engine.client.hvals(engine.keys.of("history"))]
    return {int(row.pop("day")): row for row in found}


def test_each_day_has_its_row_and_the_ninetieth_after_it_writes_over_it(each_engine: Engine) -> None:
    engine, today = each_engine, START // DAY_MS
    engine.schedule([engine.job("a")])
    tally(engine, took_ms=1)
    engine.now += MINUTE_MS
    tally(engine, took_ms=2)
    assert days(engine) == {today: {"scheduled": 1, "took_ms": 3}}
    engine.now = START + DAY_MS
    tally(engine, took_ms=4)
    assert days(engine) == {today: {"scheduled": 1, "took_ms": 3}, today + 1: {"took_ms": 4}}
    engine.now = START + HISTORY_DAYS * DAY_MS
    tally(engine, took_ms=8)
    assert days(engine) == {today + 1: {"took_ms": 4}, today + HISTORY_DAYS: {"took_ms": 8}}


def test_the_days_do_not_grow_without_bound(engine: Engine) -> None:
    measures = {f"{name}:{n}": 1_000_000.0 for name in ("late", "took") for n in range(PARTS)}
    for _ in range(2 * HISTORY_DAYS):
        tally(engine, **measures)
        engine.now += DAY_MS
    key = engine.keys.of("history")
    assert engine.client.hlen(key) == HISTORY_DAYS
    assert engine.client.memory_usage(key) < 100_000
    assert HISTORY_DAYS * DAY_MS < engine.client.pttl(key) <= (HISTORY_DAYS + 1) * DAY_MS


@pytest.mark.parametrize("row", ["garbage", "[1]", '{"day":"x"}', '{"day":[1]}', '{"minute":1}'])
def test_a_row_of_a_day_that_somebody_else_wrote_is_written_over(engine: Engine, row: str) -> None:
    today = START // DAY_MS
    engine.client.hset(engine.keys.of("history"), str(today % HISTORY_DAYS), row)
    tally(engine, took_ms=1)
    assert days(engine) == {today: {"took_ms": 1}}


def test_a_counter_that_went_down_starts_anew(engine: Engine) -> None:
    engine.schedule([engine.job("a"), engine.job("b")])
    tally(engine)
    engine.client.hset(engine.keys.meta, "scheduled_total", 1)
    tally(engine)
    assert rows(engine)[NOW]["scheduled"] == 3


def test_what_is_not_written_down_yet_can_be_told(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    tally(engine)
    engine.schedule([engine.job("b"), engine.job("c")])
    seen = looked(engine)
    assert span_of(0, [not_tallied(seen.tallied, seen.totals)]).scheduled == 2
    assert span_of(0, [not_tallied("", seen.totals)]).scheduled == 3


@pytest.mark.parametrize("row", ["garbage", "[1]", "17", '{"minute":"x"}', ""])
def test_a_row_that_somebody_else_wrote_is_written_over(engine: Engine, row: str) -> None:
    engine.client.hset(engine.keys.of("activity"), str(NOW % DAY_MINUTES), row)
    assert rows(engine) == {}
    tally(engine, **{"late:0": 1})
    assert rows(engine) == {NOW: {"minute": NOW, "late:0": 1}}


def test_a_measure_that_is_no_number_is_refused_before_anything_is_written(engine: Engine) -> None:
    call = activity.tally(engine.scope, {"late:0": 1})
    broken = type(call)(call.script, call.keys, (*call.args, "late:1", "x"), call.parse)
    with pytest.raises(redis.ResponseError, match="how much"):
        engine.run(broken)
    assert rows(engine) == {}


def test_a_full_server_refuses_and_nothing_is_lost(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    engine.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            tally(engine, took_ms=1)
    finally:
        engine.client.config_set("maxmemory", 0)
    assert tally(engine)
    assert rows(engine) == {NOW: {"minute": NOW, "scheduled": 1}}
