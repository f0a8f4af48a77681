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
