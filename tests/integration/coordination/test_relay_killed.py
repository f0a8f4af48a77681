"""A relay that dies at every point of its work: what it carried runs once, whoever goes on where it stopped.

The dead relay is one whose connection is gone for good before, or just after, its n-th command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable
from delayq.core.outcome import Ack
from delayq.drivers.base import Settlement
from delayq.drivers.redis_relay import RedisRelay
from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.redis.calls.follow import HOLD_MS
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.engine import START
from tests.support.station import Station
from tests.support.steps import QUEUES, Steps

pytestmark = pytest.mark.usefixtures("manager")
MOST = 60


class Dying(Connector):
    """Carries `left` commands; the next one never leaves, or (`late`) its answer never comes, and so for ever."""

    def __init__(self, url: str, left: int, *, late: bool) -> None:
        super().__init__(url)
        self.left, self.late = left, late

    def call(self, do: Callable[[Any], Any], *, safe: bool, reads: bool = False) -> Any:
        self.left -= 1
        if self.left == -1 and self.late:
            super().call(do, safe=safe, reads=reads)
        if self.left < 0:
            raise BackendUnavailable("the relay is dead")
        return super().call(do, safe=safe, reads=reads)


class World:
    """One worker and one relay, step by step, in one process."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.ran: Counter[str] = Counter()
        self._consumer = station.driver.consumer("dq:here:1:a", QUEUES)

    def work(self) -> int:
        """Promote and run everything there is, without carrying anything; how many jobs."""
        for queue in QUEUES:
            self.station.driver.promote(queue)
        deliveries = self._consumer.fetch([], 100).deliveries
        self.ran.update(delivery.id for delivery in deliveries)
        self._consumer.settle([Settlement(delivery, Ack()) for delivery in deliveries])
        return len(deliveries)

    def carry(self, connector: Connector) -> None:
        client = Client(connector, self.station.options, self.station.clock)
        relay = RedisRelay(client)
        for queue in QUEUES:
            relay.relay(queue)

    def carry_and_die(self, commands: int, *, late: bool) -> bool:
        """Whether it died."""
        connector = Dying(self.station.url, commands, late=late)
        try:
            self.carry(connector)
        except BackendUnavailable:
            return True
        finally:
            connector.close()
        return False

    def to_the_end(self) -> None:
        """Work and carry until neither finds anything; the dead relay's hold on the outbox runs out first."""
        idle = 0
        while idle < 2:
            assert self.station.now_ms is not None
            self.station.now_ms += HOLD_MS + 1
            idle = 0 if self.work() else idle + 1
            self.carry(self.station.connector)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_whatever_it_carried_runs_once(station: Station, late: bool) -> None:
    steps = Steps(station)
    died = 0
    for commands in range(MOST):
        station.connector.commands().flushdb()
        station.now_ms = START
        world = World(station)
        members = [steps(f"m{n}", id=f"m{n}", queue=QUEUES[n % 3]) for n in range(3)]
        inner = batch(members, id="b", then=steps("then", id="then"), finally_=steps("f", id="f", queue="mails"))
        chain(steps("one", id="one"), steps("two", id="two", queue="mails"), inner, steps("z", id="z")).dispatch()
        round_of_death = 0
        while world.work():
            if world.carry_and_die(commands, late=late):
                round_of_death += 1
                world.work()  # what it had carried runs and is forgotten before anybody goes on
                break
        world.to_the_end()
        assert world.ran == dict.fromkeys(["one", "two", "m0", "m1", "m2", "then", "f", "z"], 1), commands
        died += round_of_death
        if not round_of_death:
            break
    assert died >= 10, "the relay has that many points to die at"
    assert commands < MOST - 1, "and no more than were tried"
