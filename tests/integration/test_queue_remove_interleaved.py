"""A queue is removed while other clients use it: a queue that holds a job stays on the list of queues.

Every command of every client is one step, in an order that a seed draws. The rounds with threads are the same on real
connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest
import redis

from delayq import DelayQ, QueueInUse, QueueNotFound
from delayq.core.options import Options
from delayq.core.shards import shard_of
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.redis import operations, resharding, whole
from delayq.redis.calls import deliver
from delayq.redis.keys import Keys
from delayq.redis.verbs import Flow, Verbs
from tests.support.interleave import Loom
from tests.support.snapshot import word

Q = "orders"
OPTIONS = Options(queue=Q)
ROUNDS = 120
NEVER = 1_000
THREAD_ROUNDS = 150

Change = Callable[[Verbs], Flow[object]]


def _schedule(verbs: Verbs) -> Flow[object]:
    return verbs.schedule(JobSpec(name="x", delay="1h", queue=Q), OnConflict.KEEP)


def _schedule_now(verbs: Verbs) -> Flow[object]:
    return verbs.schedule(JobSpec(name="x", queue=Q), OnConflict.KEEP)


def _schedule_many(verbs: Verbs) -> Flow[object]:
    return verbs.schedule_many([JobSpec(name="x", delay="1h", queue=Q)] * 6, OnConflict.KEEP)


def _replace(verbs: Verbs) -> Flow[object]:
    return verbs.schedule(JobSpec(name="x", id="same", delay="1h", queue=Q), OnConflict.REPLACE)


def _promote(verbs: Verbs) -> Flow[None]:
    yield deliver.promote(verbs.shard(Q))


def _tidy(verbs: Verbs) -> Flow[None]:
    yield deliver.tidy(verbs.shard(Q))
    yield from whole.undo_if_removed(verbs, Q)


def _configure(verbs: Verbs) -> Flow[object]:
    return whole.configure(verbs, Q, "30s")


def _pause(verbs: Verbs) -> Flow[object]:
    return operations.pause(verbs, Q, None)


def _remove(verbs: Verbs) -> Flow[object]:
    return whole.remove(verbs, Q, ())


PRODUCERS: list[Change] = [_schedule, _schedule_now, _schedule_many, _replace]
OTHERS: list[Change] = [_promote, _tidy, _configure, _pause, _remove]


def _unlisted(client: redis.Redis) -> list[str]:
    """The shards that hold a job and are not on the list of queues."""
    listed = set(map(word, client.smembers("delayq:queues")))
    shards = [shard_of(Q, number) for number in range(4)]
    return [shard for shard in shards if client.exists(Keys("delayq", shard).of("jobs")) and shard not in listed]


def _empty(client: redis.Redis, shards: int, verbs: list[Verbs]) -> None:
    """A queue without a job, which these clients have used before."""
    loom = Loom(client, Random(0), lambda: None)
    if shards > 1:
        loom.start(resharding.change(verbs[0], Q, shards))
        loom.run()
    for one in verbs:
        loom.start(one.schedule(JobSpec(name="x", id="first", delay="1h", queue=Q), OnConflict.KEEP))
        loom.run()
        loom.start(one.cancel("first", Q, running=False))
        loom.run()


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("beside", [None, *OTHERS], ids=lambda one: getattr(one, "__name__", "alone"))
def test_no_order_of_commands_leaves_a_job_in_a_queue_that_is_not_listed(
    redis_client: redis.Redis, shards: int, beside: Change | None
) -> None:
    for seed in range(ROUNDS if shards == 1 else ROUNDS // 5):
        redis_client.flushall()
        rand = Random(seed)
        verbs = [Verbs(OPTIONS) for _ in range(4)]
        _empty(redis_client, shards, verbs)
        loom = Loom(redis_client, rand, lambda: None)
        loom.start(_remove(verbs[0]))
        for _ in range(rand.randrange(8)):
            if loom.busy:
                loom.step()
        if beside:
            loom.start(beside(verbs[1]))
        for _ in range(rand.randrange(3)):
            if loom.busy:
                loom.step()
        loom.start(rand.choice(PRODUCERS)(verbs[2]))
        loom.run()
        loom.start(_schedule(verbs[2]))  # a client that has used the queue meanwhile
        loom.run()
        assert _unlisted(redis_client) == [], f"seed {seed}"


@pytest.mark.parametrize("shards", [1, 4])
def test_racing_threads_leave_no_job_in_a_queue_that_is_not_listed(redis_url: str, shards: int) -> None:
    producer, remover, rand = DelayQ(redis_url), DelayQ(redis_url), Random(shards)
    removed = 0
    for number in range(THREAD_ROUNDS):
        queue = f"q{number}"
        producer.queue_set(queue, shards=shards)
        producer.schedule("x", queue=queue, delay="1h", id="first")
        producer.cancel("first", queue=queue)
        both, gone = threading.Barrier(2), list[bool]()

        def remove(queue: str = queue, both: threading.Barrier = both, gone: list[bool] = gone) -> None:
            both.wait()
            try:
                remover.queue_remove(queue)
            except (QueueInUse, QueueNotFound):
                return
            gone.append(True)

        racing = threading.Thread(target=remove)
        racing.start()
        both.wait()
        threading.Event().wait(rand.random() * 0.003 * shards)  # another moment in each round
        ref = producer.schedule("x", queue=queue, delay="1h", id="second")
        racing.join()
        removed += bool(gone)
        assert str(ref.outcome) == "created"
        assert queue in producer.queues(), queue
        assert producer.get("second", queue=queue) is not None
    assert removed  # otherwise nothing raced
