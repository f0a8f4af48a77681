"""One queue on the way of a traveller: what is due in it, and its deliveries one by one."""

from __future__ import annotations

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
        """When something could happen here next: the first due time, or the end of a pause; None = never."""
        [stats] = self._client.stats(self.queue)
        if stats.paused_until_ms is not None:
            return stats.paused_until_ms or None
        page = self._client.list_jobs(State.SCHEDULED, queue=self.queue, limit=1)
        return page.jobs[0].due_ms if page.jobs else None

    def take(self) -> Delivery | None:
        """The next delivery, if one is due; nothing while the queue is paused."""
        [stats] = self._client.stats(self.queue)
        if stats.paused:
            self.close()
            return None
        self._driver.promote(self.queue)
        if self._consumer is None:
            self._consumer = self._driver.consumer(f"{NAME}:{self.queue}", (self.queue,))
        fetched = self._consumer.fetch((), 1)
        _raise(fetched.errors)
        return fetched.deliveries[0] if fetched.deliveries else None

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle one."""
        if self._consumer is not None:
            _raise(self._consumer.settle([Settlement(delivery, outcome)]).errors)

    def tidy(self) -> None:
        """Forget what was kept long enough, as the janitor does."""
        self._driver.tidy(self.queue)

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _raise(errors: object) -> None:
    for error in errors if isinstance(errors, list | tuple) else ():
        if isinstance(error, DelayqError):
            raise error
