"""What a worker with nothing to do asks of Redis in a minute. Commands are counted and a test's clock passes the time,
so no machine is too slow for these bounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from delayq.drivers import redis_reader, redis_steward
from delayq.drivers.base import Consumer, Steward
from delayq.loops.janitor import Janitor
from delayq.loops.mover import Mover
from delayq.loops.served import Roll
from delayq.redis.direct import GroupRead, Heard
from delayq.redis.wakeups import QUIET_S
from delayq.worker.holding import Holding
from delayq.worker.slots import Slots, Word
from delayq.worker.turns import Turns
from tests.support.fakes import Clock, Hints
from tests.support.station import QUEUE, Station
from tests.support.traffic import commands

MINUTE = 60
OF_LOOPS, OF_LISTENER, OF_CHILD, OF_SUPERVISOR = 50, 6, 15, 46
"""The most that each of them may ask in a minute, once it has begun."""
CONSUMER = "dq:host:1:a1"


class Listening(Hints):
    """Wake-ups of a mover that hears, and hears nothing."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.listening = True


def looking_after(station: Station, clock: Clock) -> Callable[[float], None]:
    """Mover and janitor side by side, as they share a process; called, they work for so many seconds."""
    roll = Roll(station.driver, clock)
    mover = Mover(station.driver, clock=clock, roll=roll)
    mover._wake_ups = Listening(clock)
    janitor = Janitor(station.driver, clock=clock, roll=roll)

    def work(seconds: float) -> None:
        end = clock.now + seconds
        while clock.now < end:
            pauses = mover.run_once(), janitor.run_once()
            mover.sleep(max(0.01, min(pauses)))

    return work


def test_a_worker_at_rest_asks_less_than_twice_a_second() -> None:
    assert OF_LOOPS + OF_LISTENER + OF_CHILD + OF_SUPERVISOR <= 2 * MINUTE
    assert MINUTE / QUIET_S <= OF_LISTENER, "it asks whether the server is there"


@pytest.mark.station(lease_ms=30_000)
def test_mover_and_janitor_ask_for_the_names_once_and_look_every_five_seconds(
    station: Station, redis_client: redis.Redis
) -> None:
    station.client.schedule("note", delay="1h")
    work = looking_after(station, Clock())
    work(MINUTE)
    with commands(redis_client) as asked:
        work(MINUTE)
    assert asked["SMEMBERS"] <= MINUTE / 5 + 1
    assert asked["EVALSHA"] <= MINUTE / 5 + 1 + 3 * (MINUTE / 10 + 1), "promote; tidy, unsettled and reclaim"
    assert asked.total() <= OF_LOOPS, asked


def a_minute_of_waiting(consumer: Consumer, clock: Clock, monkeypatch: pytest.MonkeyPatch, wait_s: float) -> None:
    """Waits of so many seconds, of which the clock knows and the server hardly."""
    monkeypatch.setattr(redis_reader, "time", SimpleNamespace(monotonic=clock, sleep=lambda seconds: None))
    for _ in range(round(MINUTE / wait_s)):
        assert not consumer.wait(0.001).deliveries
        clock.now += wait_s


def test_a_worker_that_nobody_tells_looks_at_its_switches_every_other_time(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(station.driver.consumer(CONSUMER, [QUEUE])) as consumer, commands(redis_client) as asked:
        a_minute_of_waiting(consumer, Clock(), monkeypatch, 1.0)
    assert asked["XREADGROUP"] == MINUTE
    assert asked["HMGET"] <= 2 * (MINUTE / 2 + 1), "the queue's, and those of all workers"
    assert asked.total() <= 2.1 * MINUTE, asked


def test_a_child_that_is_told_looks_at_its_switches_once(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = partial(station.driver.consumer, CONSUMER, [QUEUE], news=lambda: 1)
    with closing(told()) as consumer:
        a_minute_of_waiting(consumer, Clock(), monkeypatch, 4.0)
        with commands(redis_client) as asked:
            a_minute_of_waiting(consumer, Clock(), monkeypatch, 4.0)
    assert asked["XREADGROUP"] == asked.total() == OF_CHILD, asked


@pytest.mark.parametrize(("sleep_ms", "lease_s", "waits_s"), [(1_000, 30, 5), (500, 30, 0.5), (1_000, 3, 1)])
def test_a_child_with_nothing_else_to_see_to_waits_long(sleep_ms: int, lease_s: float, waits_s: float) -> None:
    slots = Slots((QUEUE,), 4)
    slots.floats[Word.LEASE] = lease_s
    holding = Holding(slots, lambda: 0)
    options = SimpleNamespace(once=False, stop_when_empty=False, sleep_ms=sleep_ms)
    turns = Turns(slots, holding, *(cast(Any, part) for part in (None, None, options)))
    assert turns._patience() == waits_s
    turns.may_fetch = lambda: True
    assert turns._patience() == sleep_ms / 1000, "gates are asked now and then"


def a_minute_of_keeping(steward: Steward, pass_time: Callable[[float], None]) -> None:
    """What a supervisor asks for one child: the lease every five seconds, the rest every ten."""
    for second in range(MINUTE):
        pass_time(1.0)
        if second % 5 == 0:
            steward.lease_s()
        if second % 10 == 0:
            steward.renew(CONSUMER, [])
            steward.announce(CONSUMER, {}, 30.0)


def test_a_told_child_waits_four_seconds_in_redis_so_that_a_dead_connection_is_found_in_six(station: Station) -> None:
    blocks: list[int] = []

    def read(asked: GroupRead) -> list[Heard]:
        blocks.append(asked.block_ms)
        return []

    for news in (lambda: 0, None):
        with closing(station.driver.consumer(CONSUMER, [QUEUE], news=news)) as consumer:
            consumer.wait(0.001)
            consumer._reader._client.read_any = read
            consumer.wait(5.0)
            consumer.wait(0.5)
            assert consumer._reader._client.connection_pool.connection_kwargs["socket_timeout"] == 6.0
    assert blocks == [4_000, 500, 1_000, 500]


def test_a_supervisor_learns_leases_shards_and_switches_from_one_look(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(redis_steward, "time", SimpleNamespace(monotonic=clock))

    def pass_time(seconds: float) -> None:
        clock.now += seconds

    with closing(station.driver.consumer(CONSUMER, [QUEUE])):
        steward = station.driver.steward([QUEUE])
        a_minute_of_keeping(steward, pass_time)
        with commands(redis_client) as asked:
            a_minute_of_keeping(steward, pass_time)
    assert asked["HMGET"] <= 2 * MINUTE / 5, "the queue's, and those of all workers"
    assert asked["HGET"] == 0
    assert asked["SADD"] <= 1, "the names, once a minute"
    assert asked.total() <= OF_SUPERVISOR, asked
