"""The journey: from one due time to the next, and at each of them job after job until none is left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from delayq.core.options import Options
from delayq.core.signals import TurnedAway
from delayq.drivers.base import Delivery
from delayq.drivers.redis_streams import RedisStreams
from delayq.drivers.sync import Ran
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.testing.line import Line

Running: TypeAlias = Generator[Delivery, Ran, None]
"""Yields what is to be run, and is given what came of it; so blocking and awaited travellers share it."""

MOST_AT_ONCE = 10_000


@dataclass(slots=True)
class VirtualClock:
    """The time that scripts are told; only who holds it moves it."""

    now_ms: int

    def __call__(self) -> int:
        return self.now_ms


class Backend:
    """All queues under one prefix of the private server."""

    def __init__(self, server: Connector, options: Options, clock: Callable[[], int]) -> None:
        self.client = Client(server, options, clock)
        self._driver = RedisStreams(server, options, clock)
        self._lines: dict[str, Line] = {}

    def lines(self) -> Iterator[Line]:
        """Its queues by name, those that came up just now among them."""
        for queue in self.client.queues():
            if queue not in self._lines:
                self._lines[queue] = Line(self._driver, self.client, queue)
            yield self._lines[queue]

    def close(self) -> None:
        """Leave all groups."""
        for line in self._lines.values():
            line.close()


class Journeys:
    """Moves `clock` and runs what falls due, in all queues of all `backends`. They may grow on the way."""

    def __init__(self, clock: VirtualClock, backends: dict[str, Backend]) -> None:
        self._clock = clock
        self._backends = backends

    def until(self, target_ms: int) -> Running:
        """Run everything that falls due until then, and be there."""
        yield from self._run_due()
        while (due_ms := self._next_due_ms()) is not None and due_ms <= target_ms:
            self._clock.now_ms = max(due_ms, self._clock.now_ms)
            yield from self._run_due()
        self._clock.now_ms = target_ms
        for line in self._lines():
            line.tidy()

    def _run_due(self) -> Running:
        """One of each queue in turn, until there is nothing left at this instant."""
        count, found = 0, True
        while found:
            found = False
            for line in self._lines():
                delivery = line.take()
                if delivery is not None:
                    found, count = True, count + 1
                    if count > MOST_AT_ONCE:
                        raise RuntimeError(
                            f"{MOST_AT_ONCE:,} attempts at one instant, the last of {delivery.id!r} in queue "
                            f"{delivery.queue!r}: some job comes back without a delay."
                        )
                    try:
                        ran = yield delivery
                    except GeneratorExit:  # nobody ran it
                        line.hand_back(delivery)
                        raise
                    assert ran.outcome is not None, "a delivery cannot veto itself"
                    line.settle(delivery, ran.outcome)
                    if isinstance(ran.error, TurnedAway) and ran.error.settled is not None:
                        ran.error.settled()

    def _next_due_ms(self) -> int | None:
        """When something happens next."""
        dues = [due for line in self._lines() if (due := line.next_due_ms()) is not None]
        return min(dues, default=None)

    def _lines(self) -> list[Line]:
        return [line for backend in list(self._backends.values()) for line in backend.lines()]
