"""The janitor: takes back what vanished workers hold, and heals what somebody damaged.

It decides nothing itself: `reclaim` and `tidy` of the driver do, each step in one script. Any
number of janitors may run; what one has repaired the next finds in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from delayq.core.errors import BackendError, BackendUnavailable
from delayq.drivers.base import Driver, Tidied
from delayq.loops.log_limit import LogLimit

log = logging.getLogger("delayq.janitor")

REGISTER_EVERY_S = 60.0


class Janitor:
    """Looks after `queues`, or all queues known when none are named, every `tidy_every_s` seconds."""

    name = "janitor"

    def __init__(
        self,
        driver: Driver,
        queues: Sequence[str] = (),
        *,
        tidy_every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._driver = driver
        self._only = tuple(queues)
        self._tidy_every_s = tidy_every_s
        self._clock = clock
        self._sleep = sleep
        self._register_at = float("-inf")
        self._reclaim_at: dict[str, float] = {}
        self._tidy_at: dict[str, float] = {}
        self._limit = LogLimit()

    def run_once(self) -> float:
        """One tick of every queue whose time has come; the seconds until the next one's.

        One damaged queue keeps no other from its tick; a backend that cannot be reached ends the turn.
        """
        queues = self._only or self._driver.queues()
        if self._clock() >= self._register_at:
            self._driver.register(queues)
            self._register_at = self._clock() + REGISTER_EVERY_S
        for queue in queues:
            try:
                self._tick(queue)
            except BackendUnavailable:
                raise
            except BackendError as error:
                self._postpone(queue)
                if self._limit.may_log(f"{queue} {type(error).__name__}"):
                    log.error("queue %s: %s", queue, error)
        times = [self._reclaim_at.get(queue, 0.0) for queue in queues] + [self._clock() + 1.0]
        return max(0.0, min(times) - self._clock())

    def sleep(self, seconds: float) -> None:
        """Wait; nothing wakes a janitor early."""
        self._sleep(seconds)

    def close(self) -> None:
        """Nothing was opened."""

    def _tick(self, queue: str) -> None:
        now = self._clock()
        if now >= self._tidy_at.get(queue, float("-inf")):
            self._tidy_at[queue] = now + self._tidy_every_s
            self._tell(queue, self._driver.tidy(queue))
        if now >= self._reclaim_at.get(queue, float("-inf")):
            every_s = min(self._tidy_every_s, self._driver.lease_s(queue) / 3)
            self._reclaim_at[queue] = now + every_s
            self._tell(queue, self._driver.reclaim(queue))

    def _postpone(self, queue: str) -> None:
        self._reclaim_at[queue] = self._tidy_at[queue] = self._clock() + 1.0

    def _tell(self, queue: str, tidied: Tidied) -> None:
        if tidied.quiet:
            return
        found = ", ".join(f"{name} {count}" for name, count in asdict(tidied).items() if count)
        log.warning("queue %s: %s", queue, found)
