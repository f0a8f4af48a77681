"""What happened can be asked for: counted by scripts and workers, through the death of a child."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ
from delayq.core.activity import DAY_MS, Span
from delayq.core.errors import InvalidInput
from delayq.core.states import State
from tests.support.supervision import House


def test_counts_and_spreads_of_a_worker_whose_child_is_killed(house: House) -> None:
    ids = [f"n{n}" for n in range(30)]
    house.schedule("noop", *ids)
    house.schedule("bad", "b1", "b2")
    house.schedule("kill_self", "killer")
    with house.open(tries=1, mover=True) as shop:
        house.until("killer", State.FAILED, timeout=30)
        house.schedule("noop", "last")
        house.until_gone(*ids, "last")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    found = house.client.activity("default", spans=5)
    total = found.total
    starts = 30 + 2 + 1 + 4  # the one that kills is started four times
    assert (total.scheduled, total.done, total.failed) == (34, 31, 3)
    assert total.reclaimed == 3
    assert (total.started, total.late.count) == (starts, starts)
    assert total.took.count == 30 + 2 + 1  # of those that ended
    assert total.late.percentile(0.5) is not None
    assert found.total == house.client.activity(spans=5).total
    by_day = house.client.activity("default", days=2)
    assert replace(by_day.total, start_ms=0) == replace(total, start_ms=0)
    assert (by_day.span_ms, len(by_day.spans), by_day.spans[-1].start_ms % DAY_MS) == (DAY_MS, 2, 0)
    assert house.client.activity(days=2).total == by_day.total


def test_a_queue_that_nobody_works_on_is_counted_by_the_mover_or_told_at_once(house: House) -> None:
    house.client.schedule("later", delay="1h", id="a")
    assert house.client.activity("default").spans[-1].scheduled == 1
    assert [one.scheduled for one in house.client.activity(days=90).spans] == [*[0] * 89, 1]
    assert house.client.activity("nothing").total == Span(house.client.activity("nothing").spans[0].start_ms)


async def test_asyncio_answers_the_same(house: House) -> None:
    house.client.schedule("later", delay="1h")
    async with AsyncDelayQ(house.url) as q:
        assert (await q.activity()).total.scheduled == 1
        assert (await q.activity(days=1)).total.scheduled == 1


@pytest.mark.parametrize("given", [{"days": 0}, {"days": 91}, {"days": 1, "spans": 5}, {"days": 1, "span": "5m"}])
def test_days_are_ninety_at_most_and_stand_alone(house: House, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        house.client.activity(**given)


def test_a_day_that_somebody_else_wrote_is_left_out(house: House, redis_client: redis.Redis) -> None:
    rows = ("garbage", '{"day":[1],"acked":5}', '{"day":1,"acked":5}', '{"acked":5}')
    for place, row in enumerate(rows):
        redis_client.hset("delayq:{default}:history", str(place), row)
    redis_client.expire("delayq:{default}:history", 60)
    assert house.client.activity("default", days=90).total.done == 0


@pytest.mark.parametrize(("span", "spans"), [("30s", 1), ("90s", 1), ("1m", 0), ("1m", 1441), ("1h", 25), ("0s", 1)])
def test_spans_are_whole_minutes_of_one_day(house: House, span: str, spans: int) -> None:
    with pytest.raises(InvalidInput):
        house.client.activity(span=span, spans=spans)


def test_each_job_name_has_its_attempts_and_run_times(house: House) -> None:
    ids = [f"n{n}" for n in range(30)]
    house.schedule("noop", *ids)
    house.schedule("bad", "b1", "b2")
    house.schedule("kill_self", "killer")
    with house.open(tries=1, mover=True) as shop:
        house.until("killer", State.FAILED, timeout=30)
        house.schedule("noop", "last")
        house.until_gone(*ids, "last")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    found = house.client.job_types("default")
    by_name = {one.name: one for one in found.types}
    assert [one.name for one in found.types][:2] == ["noop", "bad"]
    assert (by_name["noop"].done, by_name["noop"].attempts, sum(by_name["noop"].times)) == (31, 31, 31)
    assert (by_name["bad"].failed, by_name["bad"].failure_rate) == (2, 1.0)
    assert by_name["noop"].percentile(0.5) is not None
    assert (by_name["noop"].queues, by_name["noop"].failure_rate) == (("default",), 0.0)
    assert found.now_ms - found.since_ms > DAY_MS
    assert house.client.job_types().types == found.types
    assert house.client.job_types(days=90).types == found.types
    house.client.prune_failed("default", older="0s")
    house.client.queue_remove("default")
    assert house.client.job_types(days=90).types == ()


async def test_asyncio_tells_of_the_same_job_types(house: House) -> None:
    house.schedule("noop", "a")
    with house.open(mover=True) as shop:
        house.until_gone("a")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    async with AsyncDelayQ(house.url) as q:
        assert (await q.job_types()).types == house.client.job_types().types != ()
        assert (await q.job_types("another", hours=1)).types == ()


@pytest.mark.parametrize("given", [{"hours": 0}, {"hours": 25}, {"days": 0}, {"days": 91}, {"hours": 1, "days": 1}])
def test_windows_of_job_types(house: House, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        house.client.job_types(**given)


def test_hours_that_are_over_and_rows_that_somebody_else_wrote_are_left_out(
    house: House, redis_client: redis.Redis
) -> None:
    hour = house.client.job_types().now_ms // 3_600_000
    rows: dict[str, str | bytes] = {
        "1:now": f'{{"at":{hour},"done":1}}',
        "2:day": f'{{"at":{hour - 24},"done":1}}',
        "3:old": f'{{"at":{hour - 25},"done":1}}',
        "4:a": "garbage",
        "5:b": '{"at":"x","done":1}',
        b"6:\xff".decode("latin-1"): "[1]",
        "7": '{"at":1,"names":["now"]}',
    }
    redis_client.sadd("delayq:queues", "default")
    for field, row in rows.items():
        redis_client.hset("delayq:{default}:types_by_hour", field, row)
    redis_client.expire("delayq:{default}:types_by_hour", 60)
    assert {one.name for one in house.client.job_types().types} == {"now", "day"}
    assert {one.name for one in house.client.job_types(hours=23).types} == {"now"}


def test_job_types_of_a_sharded_queue(house: House, redis_client: redis.Redis) -> None:
    house.client.queue_set("default", shards=4)
    ids = [f"n{n}" for n in range(24)]
    house.schedule("noop", *ids)
    with house.open(mover=True) as shop:
        house.until_gone(*ids)
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    (noop,) = house.client.job_types("default").types
    assert (noop.done, noop.queues) == (24, ("default",))
    assert [key for key in redis_client.keys("*:types_by_*") if b"#" in key] == []
