"""A clock and a backend made by hand, for tests of timing and order alone."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.control import Heed, News, obey
from delayq.core.order import Order, strict
from delayq.drivers.base import Consumer, Promotion, Relayed, Steward, Tidied


class Clock:
    """A clock that only the test moves, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Hints:
    """Wake-ups that a test gives: each `wait` takes the next, and passes the time on the clock."""

    def __init__(self, clock: Clock) -> None:
        self.waits: list[float] = []
        self.given: list[frozenset[str] | None] = []
        self.listening = False
        self.closed = False
        self._clock = clock

    def wait(self, seconds: float) -> frozenset[str] | None:
        self.waits.append(seconds)
        if self.given:
            return self.given.pop(0)
        self._clock.now += seconds
        return frozenset()

    def close(self) -> None:
        self.closed = True


class Backend:
    """A driver that writes down what it is asked, in order, and answers what the test says."""

    def __init__(self, *queues: str) -> None:
        self.clock = Clock()
        self.hints = Hints(self.clock)
        self.asked: list[str] = []
        self.known = list(queues)
        self.promotions: dict[str, Promotion] = {}
        self.trouble: dict[str, Exception] = {}
        self.leases: dict[str, float] = {}
        self.found = Tidied()
        self.pages = 1

    def queues(self) -> list[str]:
        self._ask("queues")
        return list(self.known)

    def register(self, queues: Sequence[str]) -> None:
        self._ask(f"register {' '.join(queues)}")

    def relist(self) -> bool:
        self._ask("relist")
        self.pages -= 1
        return self.pages <= 0

    def promote(self, queue: str) -> Promotion:
        self._ask(f"promote {queue}")
        return self.promotions.get(queue, Promotion(0, 0, None))

    def relay(self, queue: str) -> Relayed:
        self._ask(f"relay {queue}")
        return Relayed()

    def reclaim(self, queue: str) -> Tidied:
        self._ask(f"reclaim {queue}")
        return Tidied()

    def tidy(self, queue: str) -> Tidied:
        self._ask(f"tidy {queue}")
        return self.found

    def lease_s(self, queue: str) -> float:
        return self.leases.get(queue, 30.0)

    def wake_ups(self) -> Hints:
        return self.hints

    def consumer(
        self, name: str, queues: Sequence[str], heed: Heed = obey, order: Order = strict, news: News | None = None
    ) -> Consumer:
        raise AssertionError("no loop asks for a consumer")

    def steward(self, queues: Sequence[str]) -> Steward:
        raise AssertionError("no loop asks for a steward")

    def close(self) -> None:
        raise AssertionError("no loop closes what it was given")

    def take_asked(self) -> list[str]:
        """What was asked since the last look."""
        asked, self.asked = self.asked, []
        return asked

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.trouble:
            raise self.trouble[what]
