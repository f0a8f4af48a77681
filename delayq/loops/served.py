"""Which queues a loop looks after, shard by shard. The loops of a process share one list, so it is asked for once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.errors import AWAY, BackendError
from delayq.core.shards import all_shards
from delayq.drivers.base import Driver
from delayq.loops.troubles import Troubles

OLD_S: Final = 5.0
"""How old the list may be for a loop that hears of a new queue in another way too."""


class Roll:
    """The names of all queues, as last read. May be asked from several threads."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._clock = clock
        self._lock = threading.Lock()
        self._names: Sequence[str] = ()
        self._read_at = float("-inf")

    def names(self, within_s: float) -> Sequence[str]:
        """As they were less than `within_s` seconds ago; 0 reads them now. Raises `BackendError` as the driver does."""
        with self._lock:
            now = self._clock()
            if now - self._read_at >= within_s:
                self._names, self._read_at = self._driver.queues(), now
            return self._names

    def doubt(self) -> None:
        """There is a queue that it does not name: whoever asks next reads it anew."""
        self._read_at = float("-inf")


def served(
    roll: Roll, within_s: float, only: Sequence[str], before: Sequence[str], troubles: Troubles
) -> tuple[Sequence[str], bool]:
    """All that are known; of the queues `only`, when some are named, and then also those that nobody knows yet.

    And whether the list could be read. When it is damaged it keeps no named queue from being looked after, and when its
    node of a cluster is away, none: then it is those of `before`.
    """
    try:
        known = roll.names(within_s)
    except BackendError as error:
        away = isinstance(error, AWAY)
        left = before or only
        if (away and not error.apart) or not left or (not away and not only):
            raise
        troubles.tell(error, "the list of queues")
        return left, False
    return (all_shards(only, known) if only else known), True
