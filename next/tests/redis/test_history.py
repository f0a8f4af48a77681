"""What happened in a queue, day by day: written with each repair, read with both clients."""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from delayq import DayCounts, InvalidInput
from delayq.core.options import DEFAULTS
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.queue_keeper import RedisQueueKeeper

HISTORY = "test:{orders}:history"


@pytest.fixture
def keeper(url: str, server: redis.Redis) -> RedisQueueKeeper:
    return RedisQueueKeeper(ServerExecutor(BlockingLeaf(Address(url))), Keys("test"), DEFAULTS, name="dq:a:1:x")


def day_before(server: redis.Redis, days: int) -> tuple[int, str]:
    """Return a day as the rows number it, and as people write it."""
    seconds, _ = server.time()
    day = datetime.fromtimestamp(seconds, UTC) - timedelta(days=days)
    return int(day.timestamp()) // 86_400, day.strftime("%Y-%m-%d")


def test_each_repair_writes_what_happened_since(client: Any, keeper: RedisQueueKeeper, server: redis.Redis) -> None:
    assert client.history("orders") == []
    for n in range(3):
        client.schedule("n", id=f"job-{n}", queue="orders", delay="1h")
    keeper.repair("orders")
    client.cancel("job-0", queue="orders")
    for _ in range(2):
        keeper.repair("orders")
    _, today = day_before(server, 0)
    assert client.history("orders") == [DayCounts(today, {"scheduled": 3, "cancelled": 1})]


def test_days_are_read_from_the_oldest_on(client: Any, server: redis.Redis) -> None:
    for ago in (0, 3, 7):
        number, _ = day_before(server, ago)
        server.hset(HISTORY, str(number % 90), json.dumps({"day": number, "acked": ago}))
    server.hset(HISTORY, "x", "no row")
    assert [day.counters["acked"] for day in client.history("orders", days=7)] == [3, 0]
    assert [day.day for day in client.history("orders", days=8)] == [day_before(server, ago)[1] for ago in (7, 3, 0)]
    with pytest.raises(InvalidInput, match="days is 91"):
        client.history("orders", days=91)


def test_a_history_that_cannot_be_written_stops_nothing(
    client: Any, keeper: RedisQueueKeeper, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.schedule("n", queue="orders", delay="1h")
    server.set(HISTORY, "no hash")
    with caplog.at_level(logging.WARNING, "delayq.loops"):
        keeper.repair("orders")
    assert "the history of the queue orders cannot be written" in caplog.text
