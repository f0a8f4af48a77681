"""A pause with an end: the child waits until this end and no longer."""

from typing import Any

import pytest

from delayq.core.options import Options
from delayq.redis.connection.factory import make_executor
from delayq.redis.connection.url import Address
from delayq.redis.worker import consumer as consumer_module
from delayq.redis.worker.consumer import PAUSED_WAIT, RedisConsumer
from tests.support.queue import OURS, QueueOnServer


def consumer_of(url: str, queue: QueueOnServer, *queues: str) -> RedisConsumer:
    consumer = RedisConsumer(make_executor(Address(url)), queue.keys, list(queues), Options(), name=OURS)
    consumer.open()
    return consumer


@pytest.mark.parametrize(("for_ms", "longest"), [(300, 0.3), (60_000, PAUSED_WAIT), (0, PAUSED_WAIT)])
def test_a_child_sleeps_until_the_end_of_a_pause(
    queue: QueueOnServer, url: str, monkeypatch: pytest.MonkeyPatch, for_ms: int, longest: float
) -> None:
    queue.pause(for_ms, now="")
    consumer = consumer_of(url, queue, "orders")
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(consumer._executor, "sleep", sleep)
    consumer.wait(5)
    assert slept[0] <= longest


@pytest.mark.parametrize("wait", [0.0, PAUSED_WAIT], ids=["later", "at once"])
def test_a_child_that_never_waits_notices_the_end_of_a_pause(
    queue: QueueOnServer, url: str, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """A child with a long job and free threads has room, but does not wait for jobs."""
    monkeypatch.setattr(consumer_module, "PAUSED_WAIT", wait)
    queue.put("order-1", "ready")
    queue.pause(0, now="")
    consumer = consumer_of(url, queue, "orders")
    assert consumer.complete(consumer.begin([], 1)) == ([], [])
    queue.resume(now="")
    taken = [consumer.complete(consumer.begin([], 1))[1] for _ in range(2)]
    assert [len(jobs) for jobs in taken] == ([0, 1] if wait == 0 else [0, 0])


def test_a_read_beside_a_paused_queue_ends_with_the_pause_and_never_blocks_for_ever(
    queue: QueueOnServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.pause(60_000, now="")
    consumer = consumer_of(url, queue, "orders", "other")
    monkeypatch.setattr(consumer._switches, "seconds_to_end", lambda now_ms: 0.0001)
    sent: list[Any] = []
    run_all = consumer._executor.run_all

    async def record(calls: Any, **options: Any) -> Any:
        sent.extend(call.words for call in calls)
        return await run_all(calls, **options)

    monkeypatch.setattr(consumer._executor, "run_all", record)
    consumer.wait(5)
    (read,) = [words for words in sent if words[0] == "XREADGROUP"]
    assert read[read.index("BLOCK") + 1] == 1
