"""queue remove: a queue that holds nothing is forgotten; it comes back by itself when it is used again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ, DelayQ, JobRef, QueueInUse, QueueNotFound
from delayq.core.options import Options
from delayq.core.outcome import GiveUp
from delayq.core.shards import shard_of
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict
from delayq.drivers.base import Settlement
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis import resharding, whole
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys
from delayq.redis.observing import observe
from delayq.redis.verbs import Flow, Verbs
from tests.support.interleave import Loom
from tests.support.snapshot import word

Q = "orders"


@pytest.fixture
def q(redis_url: str) -> DelayQ:
    return DelayQ(redis_url)


def known(client: redis.Redis) -> set[str]:
    """The keys of queues, but for the answers of calls, which expire within a minute."""
    return {key for key in map(str, client.keys("delayq:{*")) if ":once:" not in key}


def test_a_removed_queue_leaves_nothing_behind_and_is_forgotten(q: DelayQ, redis_client: redis.Redis) -> None:
    q.schedule("order.close", queue=Q, id="a")
    q.queue_set(Q, lease="5s")
    with closing(RedisStreams(q.connector, q.options)) as driver:
        driver.tidy(Q)
    q.clear(Q)
    q.queue_remove(Q)
    assert known(redis_client) == set()
    assert (q.queues(), q.stats()) == ([], [])
    assert observe(q.connector, q.options).queues == ()
    with pytest.raises(QueueNotFound, match="No queue 'orders' is known"):
        q.queue_remove(Q)


def test_a_producer_that_knew_it_registers_it_again(q: DelayQ) -> None:
    q.schedule("order.close", queue=Q, id="a", delay="1h")
    q.clear(Q)
    q.queue_remove(Q)
    q.schedule("order.close", queue=Q, id="b", delay="1h")
    assert [(one.queue, one.scheduled) for one in q.stats()] == [(Q, 1)]


def _scheduled(q: DelayQ) -> None:
    q.schedule("order.close", queue=Q, delay="1h")


def _running(q: DelayQ) -> None:
    q.schedule("order.close", queue=Q)
    with closing(RedisStreams(q.connector, q.options).consumer("dq:host:1:a1", [Q])) as consumer:
        assert len(consumer.fetch([], 1).deliveries) == 1


def _failed(q: DelayQ) -> None:
    q.schedule("order.close", queue=Q)
    with closing(RedisStreams(q.connector, q.options).consumer("dq:host:1:a1", [Q])) as consumer:
        [delivery] = consumer.fetch([], 1).deliveries
        consumer.settle([Settlement(delivery, GiveUp(1, 1, ValueError("no")))])


@pytest.mark.parametrize(
    ("make", "said"), [(_scheduled, "1 scheduled"), (_running, "1 ready or running"), (_failed, "1 failed")]
)
def test_one_that_holds_a_job_is_refused_with_what_it_holds(
    q: DelayQ, make: Callable[[DelayQ], None], said: str
) -> None:
    make(q)
    with pytest.raises(QueueInUse, match=f"holds jobs: {said}") as refused:
        q.queue_remove(Q)
    assert "delayq clear --queue orders" in refused.value.hint
    assert q.queues() == [Q]


def test_all_shards_go_and_one_that_holds_a_job_keeps_all(q: DelayQ, redis_client: redis.Redis) -> None:
    q.queue_set(Q, shards=4)
    refs = [q.schedule("order.close", queue=Q, delay="1h") for _ in range(16)]
    for ref in refs[1:]:
        q.cancel(ref.id, queue=Q)
    before = known(redis_client)
    with pytest.raises(QueueInUse, match="1 scheduled"):
        q.queue_remove(Q)
    assert known(redis_client) == before
    q.cancel(refs[0].id, queue=Q)
    q.queue_remove(Q)
    assert (known(redis_client), q.queues()) == (set(), [])
    q.schedule("order.close", queue=Q)
    assert q.queue_show(Q).shards == 1


def test_a_janitor_with_an_old_list_leaves_no_frame_behind(q: DelayQ, redis_client: redis.Redis) -> None:
    q.queue_set(Q, lease="5s")
    with closing(RedisStreams(q.connector, q.options)) as driver:
        driver.tidy(Q)
        q.queue_remove(Q)
        driver.tidy(Q)
    assert (known(redis_client), q.queues()) == (set(), [])


def test_one_that_a_live_worker_serves_is_refused(q: DelayQ, redis_client: redis.Redis) -> None:
    q.queue_set(Q, lease="5s")
    redis_client.set("delayq:worker:w1", '{"name": "w1", "queues": ["orders"]}', ex=60)
    redis_client.zadd("delayq:workers", {"w1": 4_000_000_000_000})
    with pytest.raises(QueueInUse, match="is served by the worker w1"):
        q.queue_remove(Q)


async def test_the_async_client_does_the_same(redis_url: str) -> None:
    async with AsyncDelayQ(redis_url) as q:
        await q.schedule("order.close", queue=Q, delay="1h")
        with pytest.raises(QueueInUse):
            await q.queue_remove(Q)
        await q.clear(Q)
        await q.queue_remove(Q)
        assert await q.queues() == []


def homeless(client: redis.Redis) -> set[str]:
    """Jobs in shards that are not on the list of queues, which no mover and no janitor would find."""
    listed = {word(name) for name in client.smembers("delayq:queues")}
    shards = [shard_of(Q, number) for number in range(4)]
    return {
        word(job) for shard in shards if shard not in listed for job in client.hkeys(Keys("delayq", shard).of("jobs"))
    }


def play(client: redis.Redis, shards: int, after: int) -> tuple[bool, BaseException | None]:
    """Remove a queue; after so many commands three producers schedule, two of which knew the queue.

    Answers whether the removal had ended by then, and its error.
    """
    ends, refs = list[BaseException | None](), list[JobRef]()
    older, newer = Verbs(Options(queue=Q)), Verbs(Options(queue=Q))
    first = JobSpec(name="x", id="first", delay="1h", queue=Q)
    begin: list[Flow[Any]] = [resharding.change(older, Q, shards), older.schedule(first, OnConflict.KEEP)]
    for flow in (*begin, older.cancel("first", Q, running=False)):
        loom = Loom(client, Random(1), lambda: None)
        loom.start(flow, lambda _, error: ends.append(error))
        loom.run()
    removal, producers = Loom(client, Random(1), lambda: None), Loom(client, Random(after), lambda: None)
    removal.start(whole.remove(Verbs(Options(queue=Q)), Q, ()), lambda _, error: ends.append(error))
    for _ in range(after):
        removal.step()
    over = not removal.busy
    for n, verbs in enumerate((older, older, newer)):
        spec = JobSpec(name="x", id=f"{after}-{n}", delay="1h", queue=Q)
        producers.start(verbs.schedule(spec, OnConflict.KEEP), lambda ref, _: refs.append(ref))
    producers.run()
    removal.run()
    assert [ref.outcome for ref in refs] == [Answer.CREATED] * 3
    assert ends[:3] == [None] * 3
    return over, ends[3]


@pytest.mark.parametrize("shards", [1, 4])
def test_a_job_scheduled_between_any_two_commands_of_a_removal_is_in_a_queue_on_the_list(
    redis_client: redis.Redis, shards: int
) -> None:
    over, after, refused = False, 0, 0
    while not over:
        redis_client.flushall()
        over, error = play(redis_client, shards, after)
        assert homeless(redis_client) == set(), f"scheduled after {after} commands"
        assert error is None or isinstance(error, QueueInUse)
        refused += error is not None
        after += 1
    assert 0 < refused < after


@pytest.mark.parametrize("killed_after", range(25))
def test_a_removal_that_is_killed_leaves_a_queue_that_can_be_used(
    redis_client: redis.Redis, redis_url: str, killed_after: int
) -> None:
    older, again = Client(Connector(redis_url), Options(queue=Q)), Client(Connector(redis_url), Options(queue=Q))
    older.queue_set(Q, shards=4)
    loom = Loom(redis_client, Random(1), lambda: None)
    loom.start(whole.remove(Verbs(Options(queue=Q)), Q, ()), most=killed_after)
    loom.run()
    ids = {older.schedule("x", delay="1h").id for _ in range(8)}
    assert homeless(redis_client) == set()
    with closing(RedisStreams(again.connector, again.options)) as driver:
        for shard in driver.queues():
            driver.tidy(shard)
        assert {info.id for info in again.iter_jobs("scheduled")} == ids
    older.connector.close()
