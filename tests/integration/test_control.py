"""The switches for all workers, from the client to what a worker's consumer reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
import redis

from delayq import AsyncDelayQ, DelayQ
from delayq.core.control import Control
from delayq.core.errors import BackendDamaged
from delayq.core.options import Options
from delayq.core.outcome import GiveUp
from delayq.core.progress import Told
from delayq.core.states import State
from delayq.drivers.base import Settlement
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_reader import PAUSE_CHECK_S
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector
from tests.support.machine import wait_fairly
from tests.support.waiting import wait_until

NAME = "dq:host:1:a1"
SEEN_S = 4 * PAUSE_CHECK_S


@pytest.fixture
def q(each_redis_client: redis.Redis, each_redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(each_redis_url, queue="orders") as q:
        yield q


@pytest.fixture
def driver(q: DelayQ) -> Iterator[RedisStreams]:
    with closing(Connector(q.connector.endpoint.url)) as connector:
        yield RedisStreams(connector, Options())


@pytest.fixture
def consumer(driver: RedisStreams) -> Iterator[RedisConsumer]:
    with closing(driver.consumer(NAME, ["orders"])) as consumer:
        yield consumer


def gets(consumer: RedisConsumer) -> list[str]:
    return [delivery.id for delivery in consumer.fetch([], 10).deliveries]


def test_everything_is_paused_also_what_nobody_had_seen(q: DelayQ, consumer: RedisConsumer) -> None:
    q.pause("mails")
    assert q.pause_all(length="1h").paused
    q.schedule("x", id="a")
    assert gets(consumer) == []
    q.resume("mails")
    q.pause("mails")
    assert not q.resume_all().paused
    wait_fairly(lambda: gets(consumer) == ["a"], within=SEEN_S, what="it fetches again")
    assert q.stats("mails")[0].paused, "what was paused by name stays so"


def test_maintenance_holds_all_but_the_forced(q: DelayQ, driver: RedisStreams, consumer: RedisConsumer) -> None:
    assert q.start_maintenance(reason="new schema").reason == "new schema"
    q.schedule("x", id="a")
    assert gets(consumer) == []
    with closing(driver.consumer("dq:host:2:b2", ["orders"], lambda seen: not seen.held_by(force=True))) as forced:
        assert gets(forced) == ["a"]
        forced.hand_back(forced.replay().deliveries)
    assert not q.end_maintenance().maintenance
    wait_fairly(lambda: gets(consumer) == ["a"], within=SEEN_S, what="it fetches again")


def test_a_pause_for_a_time_ends_by_itself(q: DelayQ, consumer: RedisConsumer) -> None:
    q.pause_all(length="300ms")
    q.schedule("x", id="a")
    wait_fairly(lambda: gets(consumer) == ["a"], within=SEEN_S + 1, what="it fetches again")


def test_a_worker_hears_of_a_restart_with_its_pauses(q: DelayQ, driver: RedisStreams) -> None:
    seen: list[Control] = []

    def heed(control: Control) -> bool:
        seen.append(control)
        return True

    with closing(driver.consumer(NAME, ["orders"], heed)) as consumer:
        gets(consumer)
        assert seen[-1].restart_ms is None
        called = q.restart_workers()
        wait_fairly(lambda: gets(consumer) == [] and seen[-1].restart_ms == called.restart_ms, within=SEEN_S)
    assert called.restart_ms == called.now_ms


def test_the_look_costs_no_request_of_its_own(q: DelayQ, consumer: RedisConsumer) -> None:
    """One look is one round trip: `HMGET` of the queue's pause and shards, and of the switches, together."""
    server = redis.Redis.from_url(q.connector.endpoint.url)
    consumer.replay()  # connects, and looks at no switch
    with server.monitor() as monitor, server:  # type: ignore[no-untyped-call]
        gets(consumer)
        server.echo("end")
        commands = []
        for told in monitor.listen():
            if "end" in told["command"]:
                break
            commands.append((told["client_port"], told["command"].split()[0].upper()))
    ours = [(port, word) for port, word in commands if word not in ("HELLO", "CLIENT")]
    assert [word for _, word in ours] == ["HMGET", "HMGET", "XREADGROUP"]
    assert len({port for port, _ in ours}) == 1


def test_a_foreign_key_in_its_place_keeps_nobody_from_work(
    q: DelayQ, consumer: RedisConsumer, each_redis_client: redis.Redis
) -> None:
    each_redis_client.rpush("delayq:control", "somebody else's")
    q.schedule("x", id="a")
    fetched = consumer.fetch([], 10)
    assert [delivery.id for delivery in fetched.deliveries] == ["a"]
    assert [type(error) for error in fetched.errors] == [BackendDamaged]
    with pytest.raises(BackendDamaged, match=r"control\.lua"):
        q.pause_all()
    each_redis_client.delete("delayq:control")


def test_progress_from_the_worker_to_the_client(q: DelayQ, consumer: RedisConsumer) -> None:
    q.schedule("x", id="a")
    (held,) = consumer.fetch([], 1).deliveries
    assert q.progress("a") is None
    consumer.tell([(held, Told(done=3, total=4, note="rows", partial=b"[1]"))])
    told = q.progress("a")
    assert told is not None
    assert (told.done, told.total, told.note, told.partial, told.fraction) == (3, 4, "rows", [1], 0.75)
    job = q.get("a")
    assert job is not None
    assert job.progress == told
    consumer.hand_back([held])
    consumer.tell([(held, Told(done=4))])
    assert q.progress("a") is None, "a fenced job writes nothing"
    assert q.progress("nobody") is None


def test_the_newest_failures_come_first(q: DelayQ, driver: RedisStreams, consumer: RedisConsumer) -> None:
    assert q.recent_failures() == []
    with closing(driver.consumer("dq:host:3:c3", ["mails"])) as mails:
        for n, (reader, queue) in enumerate([(consumer, "orders"), (mails, "mails"), (consumer, "orders")]):
            q.schedule("x", id=f"j{n}", queue=queue)
            (held,) = reader.fetch([], 1).deliveries
            reader.settle([Settlement(held, GiveUp(1, 1, ValueError(f"no {n}")))])
            failed_ms = q.recent_failures(limit=1)[0].failed_ms or 0
            wait_until(partial(_is_past, q, failed_ms), what="the clock goes on")
    newest = q.recent_failures()
    assert [(job.id, job.queue, job.state) for job in newest] == [
        ("j2", "orders", State.FAILED),
        ("j1", "mails", State.FAILED),
        ("j0", "orders", State.FAILED),
    ]
    assert newest[0].failure is not None
    assert newest[0].failure.message == "no 2"
    assert [job.id for job in q.recent_failures("orders", limit=1)] == ["j2"]


def _is_past(q: DelayQ, then_ms: int) -> bool:
    return q.control().now_ms > then_ms


async def test_the_same_awaited(redis_url: str) -> None:
    async with AsyncDelayQ(redis_url) as q:
        assert (await q.control()).held_by() == ""
        assert (await q.pause_all()).paused
        assert not (await q.resume_all()).paused
        assert (await q.start_maintenance(length="1h", reason="why")).reason == "why"
        assert not (await q.end_maintenance()).maintenance
        assert (await q.restart_workers()).restart_ms is not None
        assert await q.progress("nobody") is None
        assert await q.recent_failures() == []
