"""What a worker with nothing to do asks of Redis in a minute. Commands are counted and a test's clock passes the time,
so no machine is too slow for these bounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pytest
import redis

from delayq.drivers import redis_reader, redis_steward
from delayq.loops.janitor import Janitor
from delayq.loops.mover import Mover
from delayq.loops.served import Roll
from tests.support.fakes import Clock, Hints
from tests.support.station import QUEUE, Station
from tests.support.traffic import commands

MINUTE = 60
CONSUMER = "dq:host:1:a1"


class Listening(Hints):
    """Wake-ups of a mover that hears, and hears nothing."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.listening = True


def look_after(station: Station, clock: Clock, seconds: float) -> None:
    """Mover and janitor side by side, as they share a process."""
    roll = Roll(station.driver, clock)
    mover = Mover(station.driver, clock=clock, roll=roll)
    mover._wake_ups = Listening(clock)
    janitor = Janitor(station.driver, clock=clock, roll=roll)
    end = clock.now + seconds
    while clock.now < end:
        pauses = mover.run_once(), janitor.run_once()
        mover.sleep(max(0.01, min(pauses)))


@pytest.mark.station(lease_ms=30_000)
def test_mover_and_janitor_ask_for_the_names_once_and_look_once_a_second(
    station: Station, redis_client: redis.Redis
) -> None:
    station.client.schedule("note", delay="1h")
    look_after(station, Clock(), 1.0)  # scripts become known
    with commands(redis_client) as asked:
        look_after(station, Clock(), MINUTE)
    assert asked["SMEMBERS"] <= MINUTE / 5 + 1
    assert asked["EVALSHA"] <= MINUTE + 1 + 3 * (MINUTE / 10 + 1), "promote; tidy, unsettled and reclaim"
    assert asked.total() <= 1.8 * MINUTE, asked


def test_a_waiting_worker_looks_at_its_switches_every_other_time(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(redis_reader, "time", SimpleNamespace(monotonic=clock, sleep=lambda seconds: None))
    with closing(station.driver.consumer(CONSUMER, [QUEUE])) as consumer, commands(redis_client) as asked:
        for _ in range(MINUTE):
            assert not consumer.wait(0.001).deliveries
            clock.now += 1.0
    assert asked["XREADGROUP"] == MINUTE
    assert asked["HMGET"] <= 2 * (MINUTE / 2 + 1), "the queue's, and those of all workers"
    assert asked.total() <= 2.1 * MINUTE, asked


def a_minute_of_keeping(station: Station, pass_time: Callable[[float], None]) -> None:
    """What a supervisor asks for one child: the lease every five seconds, the rest every ten."""
    steward = station.driver.steward([QUEUE])
    steward.lease_s()
    for second in range(MINUTE):
        pass_time(1.0)
        if second % 5 == 0:
            steward.lease_s()
        if second % 10 == 0:
            steward.renew(CONSUMER, [])
            steward.announce(CONSUMER, {}, 30.0)


def test_a_supervisor_learns_leases_and_shards_from_one_question(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(redis_steward, "time", SimpleNamespace(monotonic=clock))

    def pass_time(seconds: float) -> None:
        clock.now += seconds

    with closing(station.driver.consumer(CONSUMER, [QUEUE])):
        station.driver.steward([QUEUE]).renew(CONSUMER, [])  # the script becomes known
        with commands(redis_client) as asked:
            a_minute_of_keeping(station, pass_time)
    assert asked["HMGET"] <= MINUTE / 5 + 1
    assert asked["HGET"] == 0
    assert asked.total() <= 0.95 * MINUTE, asked
