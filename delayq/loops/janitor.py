"""The janitor: takes back what vanished workers hold, and heals what somebody damaged.

It decides nothing itself: `reclaim` and `tidy` of the driver do, each step in one script. Any
number of janitors may run; what one has repaired the next finds in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from delayq.core.errors import AWAY
from delayq.drivers.base import Driver, Tidied
from delayq.loops.served import OLD_S, Roll, served
from delayq.loops.troubles import Troubles

log = logging.getLogger("delayq.janitor")

LOOK_EVERY_S = 1.0
REGISTER_EVERY_S = 60.0
RELIST_EVERY_S = 3_600.0
"""Between two searches for queues that are not on the list: each reads the names of all keys."""


class Janitor:
    """Looks after `queues`, or all queues known when none are named.

    Tidies every `tidy_every_s` seconds, and reclaims every third of a queue's lease when that is shorter. `roll`: the
    list of queues, when another loop of the process reads it too.
    """

    name = "janitor"

    def __init__(
        self,
        driver: Driver,
        queues: Sequence[str] = (),
        *,
        tidy_every_s: float = 10.0,
        told: Callable[[Tidied], object] = lambda tidied: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        roll: Roll | None = None,
    ) -> None:
        self._driver = driver
        self._roll = roll or Roll(driver, clock)
        self._only = tuple(queues)
        self._tidy_every_s = tidy_every_s
        self._told = told
        self._clock = clock
        self._sleep = sleep
        self._queues: Sequence[str] = ()
        self._look_at = float("-inf")
        self._register_at = float("-inf")
        self._relist_at = float("-inf")
        self._reclaim_at: dict[str, float] = {}
        self._tidy_at: dict[str, float] = {}
        self._troubles = Troubles(log)

    def run_once(self) -> float:
        """One tick of every queue whose time has come; the seconds until the next one's.

        One damaged queue keeps no other from its tick, nor does one on a node of a cluster that is away; a backend that
        cannot be reached ends the turn.
        """
        if self._clock() >= self._look_at:
            self._guarded("queues that are not on the list", self._relist)
            self._guarded("the list of queues", self._learn)
            self._look_at = self._clock() + LOOK_EVERY_S
            self._guarded("registering queues", self._register)
        for queue in self._queues:
            if not self._guarded(f"queue {queue}", partial(self._tick, queue)):
                self._reclaim_at[queue] = self._tidy_at[queue] = self._clock() + LOOK_EVERY_S
        times = [*(self._reclaim_at.get(queue, 0.0) for queue in self._queues), self._look_at]
        return max(0.0, min(times) - self._clock())

    def sleep(self, seconds: float) -> None:
        """Wait; nothing wakes a janitor early."""
        self._sleep(seconds)

    def close(self) -> None:
        """Nothing was opened."""

    def _guarded(self, place: str, do: Callable[[], None]) -> bool:
        try:
            do()
        except Exception as error:
            if isinstance(error, AWAY) and not error.apart:
                raise
            self._troubles.tell(error, place)
            return False
        return True

    def _learn(self) -> None:
        self._queues, _ = served(self._roll, OLD_S, self._only, self._queues, self._troubles)

    def _relist(self) -> None:
        """Serving all queues, also look for those that are not on the list: at the start and hourly, step by step."""
        if self._only or self._clock() < self._relist_at:
            return
        self._relist_at = self._clock() + REGISTER_EVERY_S  # when this step fails
        over = self._driver.relist()
        self._relist_at = self._clock() + (RELIST_EVERY_S if over else 0.0)

    def _register(self) -> None:
        """Their names may have been lost with another key."""
        if self._clock() >= self._register_at:
            self._driver.register(self._queues)
            self._register_at = self._clock() + REGISTER_EVERY_S

    def _tick(self, queue: str) -> None:
        """What is due. A time is moved on only when its work was done: an outage must not cost a whole tick."""
        if self._clock() >= self._tidy_at.get(queue, float("-inf")):
            self._tell(queue, self._driver.tidy(queue))
            self._tidy_at[queue] = self._clock() + self._tidy_every_s
        if self._clock() >= self._reclaim_at.get(queue, float("-inf")):
            self._tell(queue, self._driver.reclaim(queue))
            self._reclaim_at[queue] = self._clock() + min(self._tidy_every_s, self._driver.lease_s(queue) / 3)

    def _tell(self, queue: str, tidied: Tidied) -> None:
        self._told(tidied)
        if tidied.quiet:
            return
        found = ", ".join(f"{name} {count}" for name, count in asdict(tidied).items() if count)
        log.warning("queue %s: %s", queue, found)
