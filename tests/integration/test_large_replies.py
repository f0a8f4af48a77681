"""Replies that are larger than what may be in memory: read one entry at a time, and never all together."""

from __future__ import annotations

import pytest
import redis

from delayq.core.errors import OutcomeUnknown
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector

KB = 1024
STREAM = "delayq:{default}:stream"
MOST = Options(max_payload=KB).max_envelope


def plant(client: redis.Redis, **sizes: int) -> None:
    for job_id, size in sizes.items():
        fields = {"id": job_id, "job": b"x" * size, "due": "0", "recoveries": "0"}
        client.xadd(STREAM, fields)  # type: ignore[arg-type]  # redis-py wants bytes | str | int in one way only


@pytest.mark.parametrize("protocol", [2, 3])
def test_they_are_read_one_by_one(redis_url: str, redis_client: redis.Redis, protocol: int) -> None:
    url = f"{redis_url}{'&' if '?' in redis_url else '?'}protocol={protocol}"
    driver = RedisStreams(Connector(url), Options(max_payload=KB))
    consumer = driver.consumer("reader", ["default"])
    plant(redis_client, a=MOST + 1, b=10, c=2 * MOST, d=0)

    with pytest.raises(OutcomeUnknown, match="too large to be read at once"):
        consumer.fetch((), 9)
    found = consumer.replay()

    assert [(one.id, len(one.raw), one.unreadable) for one in found.deliveries] == [
        ("a", 0, f"The envelope has {MOST + 1:,} bytes; more than {MOST:,} are not read."),
        ("b", 10, ""),
        ("c", 0, f"The envelope has {2 * MOST:,} bytes; more than {MOST:,} are not read."),
        ("d", 0, ""),
    ]
    assert not found.more
    assert len(consumer.fetch((), 9).deliveries) == 0, "and the connection works"
    plant(redis_client, e=10, f=10)
    assert [one.id for one in consumer.fetch((), 9).deliveries] == ["e"], "for a while one at a time"
    consumer.close()
    driver.close()


def test_what_is_large_together_comes_bit_by_bit(redis_url: str, redis_client: redis.Redis) -> None:
    driver = RedisStreams(Connector(redis_url), Options(max_payload=KB))
    consumer = driver.consumer("reader", ["default"])
    half = MOST // 2 + 1
    plant(redis_client, **dict.fromkeys("abcde", half))

    with pytest.raises(OutcomeUnknown):
        consumer.fetch((), 9)
    found = consumer.replay()

    assert [one.id for one in found.deliveries] == ["a", "b"], "as much as one of the largest, and the one it came with"
    assert found.more
    consumer.close()
    driver.close()
