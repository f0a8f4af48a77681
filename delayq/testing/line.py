"""One queue on the way of a traveller: what is due in it, and its deliveries one by one."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.control import in_force
from delayq.core.errors import DelayqError
from delayq.core.outcome import Outcome
from delayq.core.states import State
from delayq.drivers.base import Consumer, Delivery, Driver, Settlement
from delayq.redis.client import Client

NAME = "dq:traveller"


class Line:
    """Promotes, reads and settles as mover and worker do. Remembers no pause: after one it reads anew."""

    def __init__(self, driver: Driver, client: Client, queue: str) -> None:
        self.queue = queue
        self._driver = driver
        self._client = client
        self._consumer: Consumer | None = None

    def next_due_ms(self) -> int | None:
        """When something could happen here next: the first due time, or the end of what holds it; None = never."""
        if (until_ms := self._held_until_ms()) is not None:
            return until_ms or None
        page = self._client.list_jobs(State.SCHEDULED, queue=self.queue, limit=1)
        return page.jobs[0].due_ms if page.jobs else None

    def take(self) -> Delivery | None:
        """The next delivery, if one is due; nothing while the queue, or everything, is paused."""
        if self._held_until_ms() is not None:
            self.close()
            return None
        self._driver.promote(self.queue)
        if self._consumer is None:
            self._consumer = self._driver.consumer(f"{NAME}:{self.queue}", (self.queue,))
        fetched = self._consumer.fetch((), 1)
        _raise(fetched.errors)
        return fetched.deliveries[0] if fetched.deliveries else None

    def _held_until_ms(self) -> int | None:
        """Until when nothing is delivered here: 0 = until somebody ends that, None = it is not so."""
        [stats] = self._client.stats(self.queue)
        control = self._client.control()
        marks = (stats.paused_until_ms, control.paused_until_ms, control.maintenance_until_ms)
        untils = [until for until in marks if until is not None and in_force(until, control.now_ms)]
        return None if not untils else 0 if 0 in untils else max(untils)

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle one."""
        if self._consumer is not None:
            _raise(self._consumer.settle([Settlement(delivery, outcome)]).errors)

    def hand_back(self, delivery: Delivery) -> None:
        """Give back one that could not be run after all."""
        if self._consumer is not None:
            self._consumer.hand_back([delivery])

    def tidy(self) -> None:
        """Forget what was kept long enough, as the janitor does."""
        self._driver.tidy(self.queue)

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _raise(errors: Sequence[DelayqError]) -> None:
    if errors:
        raise errors[0]
