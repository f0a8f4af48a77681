"""Chains and batches, with one worker and one relay that are moved step by step, in one process.

world = World(station)
chain(step("a"), step("bad", QUEUES[1])).dispatch()
world.to_the_end()
assert world.ran == {"a": 1, "bad": 1}
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.envelope import Envelope
from delayq.core.outcome import Ack, GiveUp, Outcome
from delayq.core.signals import Fail
from delayq.drivers.base import Delivery, Settlement
from delayq.drivers.redis_relay import RedisRelay
from delayq.jobs.batch import batch
from delayq.jobs.coordinated import RunningChain
from delayq.jobs.coordination import ManagerCoordinator
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Dispatch, named
from delayq.redis.called_off import called_off
from delayq.redis.calls.follow import HOLD_MS
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.engine import START
from tests.support.station import Station
from tests.support.steps import QUEUES


class World:
    """One worker and one relay. Steps called `bad…` fail until they are `mended`; `grow…` put others behind."""

    def __init__(self, station: Station) -> None:
        station.connector.commands().flushdb()
        station.now_ms = START
        self.station = station
        self.ran: Counter[str] = Counter()
        self.well: Counter[str] = Counter()
        self.mended = False
        self._consumer = station.driver.consumer("dq:here:1:a", QUEUES)

    def work(self) -> bool:
        """Promote and run everything there is, without carrying anything; whether there was anything."""
        for queue, due in zip(QUEUES, self._look("zcount", "scheduled", "-inf", self.station.now_ms), strict=True):
            if due:
                self.station.driver.promote(queue)
        if not any(self._look("xlen", "stream")):
            return False
        deliveries = self._consumer.fetch([], 100).deliveries
        self._consumer.settle([Settlement(delivery, self._run(delivery)) for delivery in deliveries])
        return True

    def _run(self, delivery: Delivery) -> Outcome:
        envelope = envelopes.decode(delivery.raw)
        if self._called_off(envelope):
            return Ack(called_off=True)
        name = msgspec.json.decode(envelope.data)["name"]
        self.ran[name] += 1
        if name.startswith("bad") and not self.mended:
            return GiveUp(1, 1, Fail("it is bad"))
        self.well[name] += 1
        if name.startswith("grow"):
            rest = RunningChain(envelope, ManagerCoordinator(current_manager))
            rest.prepend(step("new", QUEUES[2]), batch([step("in", QUEUES[1])]))
            return Ack(chain=rest.changed())
        return Ack()

    def _called_off(self, envelope: Envelope) -> bool:
        """As a worker asks before it starts a member of a batch."""
        part = follow.part_of_envelope(envelope)
        if part is None or part.batch is None:
            return False
        verbs = self.station.client.verbs
        return self.station.client.run(called_off(verbs, part.batch, part.id, part.spared))

    def relay(self, connector: Connector) -> RedisRelay:
        """Others hear for a while that it is at work."""
        return RedisRelay(Client(connector, self.station.options, self.station.clock))

    def carry(self, relay: RedisRelay) -> bool:
        """Let a relay do all it can; whether there was anything."""
        owed = [queue for queue, left in zip(QUEUES, self._look("xlen", "outbox"), strict=True) if left]
        for queue in owed:
            relay.relay(queue)
        return bool(owed)

    def to_the_end(self) -> None:
        """Another relay goes on, once the hold of the dead one has run out, until nothing is left to do."""
        assert self.station.now_ms is not None
        self.station.now_ms += HOLD_MS + 1
        relay = self.relay(self.station.connector)
        while self.work() or self.carry(relay):
            pass

    def _look(self, command: str, key: str, *more: Any) -> list[int]:
        """One answer for each queue."""
        with self.station.connector.commands().pipeline(transaction=False) as pipe:
            for queue in QUEUES:
                getattr(pipe, command)(self.station.keys(queue).of(key), *more)
            return pipe.execute()


def step(name: str, queue: str = QUEUES[0], **said: Any) -> Dispatch:
    return named("step", {"name": name}).having(queue=queue, **said)


def called(prefix: str = "") -> dict[str, Any]:
    """The callbacks of a batch, each in a queue of its own."""
    return {
        name: step(f"{prefix}{name}", queue) for name, queue in zip(("then", "catch", "finally_"), QUEUES, strict=True)
    }
