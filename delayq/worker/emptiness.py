"""Whether a worker that shall stop when there is nothing to do has nothing to do.

Each child writes when it last asked in vain, holding nothing. Nothing is due and nothing is ready once
every child has asked in vain after a promotion that found nothing.
"""

from __future__ import annotations

import logging
import time

from delayq.core.errors import DelayqError
from delayq.core.shards import all_shards
from delayq.drivers.base import Driver
from delayq.worker.brood import Brood
from delayq.worker.clock import boot_clock
from delayq.worker.options import StopReason
from delayq.worker.plan import Plan

log = logging.getLogger("delayq.supervisor")

EARLY_S = 1.0


class Emptiness:
    """Asked every turn; asks the backend only when all children are idle."""

    def __init__(self, plan: Plan, driver: Driver, brood: Brood) -> None:
        self._options = plan.options
        self._driver = driver
        self._brood = brood
        self._promoted_at: float | None = None
        self._busy_at = time.monotonic()
        self._early_until = time.monotonic() + EARLY_S
        self._done = 0

    @property
    def near(self) -> bool:
        """Whether the end may come at the next look: early on, and once a promotion has found nothing."""
        early = time.monotonic() < self._early_until
        return self._options.stop_when_empty and (early or self._promoted_at is not None)

    def reason(self, *, busy: bool) -> StopReason | None:
        """EMPTY or EMPTY_FOR, when such an end is wanted and reached. `busy`: something is still to be given back."""
        options = self._options
        if not options.stop_when_empty and not options.stop_when_empty_for_ms:
            return None
        since = self._brood.idle_since
        if busy or since is None or self._brood.done != self._done:
            self._promoted_at, self._busy_at, self._done = None, time.monotonic(), self._brood.done
            return None
        if options.stop_when_empty and self._nothing_due(since):
            return StopReason.EMPTY
        idle_ms = (time.monotonic() - self._busy_at) * 1000
        if options.stop_when_empty_for_ms and idle_ms >= options.stop_when_empty_for_ms:
            return StopReason.EMPTY_FOR
        return None

    def _nothing_due(self, asked_at: float) -> bool:
        if self._promoted_at is not None:
            return asked_at > self._promoted_at
        moved = self.promote()
        if moved is not None:
            self._promoted_at = None if moved else boot_clock()
        return False

    def promote(self) -> int | None:
        """Make ready what is due, unless it was not wanted; how many. None: the backend could not say."""
        try:
            if not self._options.mover:
                return 0
            shards = all_shards(self._options.queues, self._driver.queues())
            return sum(self._driver.promote(shard).moved for shard in shards)
        except DelayqError as error:
            log.debug("cannot tell whether the queues are empty: %s", error)
            return None
