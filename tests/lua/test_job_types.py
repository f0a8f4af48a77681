"""tally: how the jobs of each name ran, hour by hour and day by day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import redis

from delayq.core.activity import DAY_MS
from delayq.core.job_types import DAYS, HOUR_MS, HOURS, MOST_NAMES
from delayq.redis.calls import activity
from delayq.redis.calls.call import Call
from tests.support.engine import START, Engine

HASHES = {"types_by_hour": (HOUR_MS, HOURS + 1), "types_by_day": (DAY_MS, DAYS + 1)}


def tally(engine: Engine, **types: Mapping[str, float]) -> bool:
    return engine.run(activity.tally(engine.scope, {}, types))


def rows(engine: Engine, key: str) -> dict[str, dict[str, Any]]:
    """All rows of a hash by field; the lists of names are left out."""
    found = engine.client.hgetall(engine.keys.of(key)).items()
    return {field.decode(): msgspec.json.decode(row) for field, row in found if b":" in field}


def names_at(engine: Engine, key: str, number: int) -> list[str]:
    raw = engine.client.hget(engine.keys.of(key), str(number % HASHES[key][1]))
    return sorted(msgspec.json.decode(raw)["names"])


@pytest.mark.parametrize("key", HASHES)
def test_counts_of_a_name_are_added_up(each_engine: Engine, key: str) -> None:
    engine, (unit_ms, slots) = each_engine, HASHES[key]
    number = START // unit_ms
    call = activity.tally(engine.scope, {}, {"close": {"done": 1, "12": 1, "took_ms": 1.5}})
    written = {"activity", "history", "meta", "types_by_hour", "types_by_day"}
    assert engine.changes(call) == (True, written)
    tally(engine, close={"done": 1, "failed": 1, "12": 1, "40": 1, "took_ms": 2.0}, send={"failed": 1})
    slot = number % slots
    assert rows(engine, key) == {
        f"{slot}:close": {"at": number, "done": 2, "failed": 1, "12": 2, "40": 1, "took_ms": 3.5},
        f"{slot}:send": {"at": number, "failed": 1},
    }
    assert names_at(engine, key, number) == ["close", "send"]


def test_without_job_types_their_keys_are_left_alone(engine: Engine) -> None:
    assert engine.changes(activity.tally(engine.scope, {"took_ms": 1})) == (True, {"activity", "history", "meta"})


@pytest.mark.parametrize("key", HASHES)
def test_a_slot_forgets_its_names_when_it_is_used_again(each_engine: Engine, key: str) -> None:
    engine, (unit_ms, slots) = each_engine, HASHES[key]
    tally(engine, old={"done": 1}, both={"done": 1})
    engine.now += unit_ms
    tally(engine, next={"done": 1})
    assert len(rows(engine, key)) == 3
    engine.now = START + slots * unit_ms
    tally(engine, both={"done": 5})
    number = START // unit_ms
    assert rows(engine, key) == {
        f"{(number + 1) % slots}:next": {"at": number + 1, "done": 1},
        f"{number % slots}:both": {"at": number + slots, "done": 5},
    }


@pytest.mark.parametrize("key", HASHES)
def test_names_beyond_the_first_two_hundred_share_a_row(engine: Engine, key: str) -> None:
    for start in range(0, 1_000, 50):
        tally(engine, **{f"job-{n}": {"done": 1} for n in range(start, start + 50)})
    tally(engine, **{"job-7": {"done": 1}, "job-900": {"done": 1}})
    found = rows(engine, key)
    slot = START // HASHES[key][0] % HASHES[key][1]
    assert len(found) == MOST_NAMES + 1
    assert found[f"{slot}:job-7"]["done"] == 2
    assert found[f"{slot}:"]["done"] == 1_000 - MOST_NAMES + 1


@pytest.mark.parametrize("key", HASHES)
def test_a_hash_does_not_grow_without_bound_and_expires(engine: Engine, key: str) -> None:
    unit_ms, slots = HASHES[key]
    for n in range(2 * slots + 3):
        tally(engine, **{f"job-{n}-{m}": {"done": 1} for m in range(4)})
        engine.now += unit_ms
    assert engine.client.hlen(engine.keys.of(key)) == slots * (4 + 1)
    assert slots * unit_ms < engine.client.pttl(engine.keys.of(key)) <= (slots + 1) * unit_ms


def test_a_name_may_be_any_text(engine: Engine) -> None:
    names = ["a:b", "12", "names", "ü", '"', "App\\Jobs\\Mail@handle"]
    tally(engine, **{name: {"done": 1} for name in names})
    slot = START // HOUR_MS % (HOURS + 1)
    assert set(rows(engine, "types_by_hour")) == {f"{slot}:{name}" for name in names}


PRESENT = f'{{"at":{START // HOUR_MS},"names":[[1],{{}},7,null]}}'


@pytest.mark.parametrize(
    "garbage", ["garbage", "[1]", "17", "{}", '{"at":1,"names":[[1],{},7,null]}', '{"names":3}', PRESENT, ""]
)
def test_what_somebody_else_wrote_is_written_over(engine: Engine, garbage: str) -> None:
    slot = START // HOUR_MS % (HOURS + 1)
    for field in (slot, f"{slot}:close"):
        engine.client.hset(engine.keys.of("types_by_hour"), str(field), garbage)
    tally(engine, close={"done": 1})
    tally(engine, close={"done": 1})
    row = rows(engine, "types_by_hour")[f"{slot}:close"]
    assert (row["at"], row["done"]) == (START // HOUR_MS, 2)


@pytest.mark.parametrize("document", ["garbage", "7", '{"close":1}', '{"close":{"done":"x"}}', '{"close":{"done":{}}}'])
def test_job_types_that_are_no_numbers_are_refused_before_anything_is_written(engine: Engine, document: str) -> None:
    call = activity.tally(engine.scope, {"took_ms": 1})
    broken = Call(call.script, call.keys, (call.args[0], document, *call.args[2:]), call.parse)
    with pytest.raises(redis.ResponseError, match="JSON object"):
        engine.run(broken)
    assert engine.client.keys() == []


def test_a_key_of_another_type_is_refused_before_anything_is_written(engine: Engine) -> None:
    engine.sound = False
    engine.client.set(engine.keys.of("types_by_day"), "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        tally(engine, close={"done": 1})
    assert engine.client.keys() == [engine.keys.of("types_by_day").encode()]
    engine.client.delete(engine.keys.of("types_by_day"))


def test_a_full_server_refuses_all_of_it(engine: Engine) -> None:
    engine.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            tally(engine, close={"done": 1})
    finally:
        engine.client.config_set("maxmemory", 0)
    assert engine.client.keys() == []


def test_its_size(engine: Engine) -> None:
    """Ten names, twenty parts each, for 90 days: below half a megabyte."""
    measured = {"done": 1_000.0, "took_ms": 12_345.678, **{str(n): 100.0 for n in range(30, 50)}}
    for _ in range(DAYS + 1):
        tally(engine, **{f"order.close.{n}": measured for n in range(10)})
        engine.now += DAY_MS
    assert engine.client.memory_usage(engine.keys.of("types_by_day"), samples=0) < 500_000
