"""Tells the backend, every few seconds and only when there is something, what the children measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from delayq.core.activity import Spread
from delayq.core.errors import DelayqError, OutcomeUnknown
from delayq.drivers.base import Steward
from delayq.loops.troubles import Troubles
from delayq.worker.meter import Meter, by_queue, measures

log = logging.getLogger("delayq.supervisor")

EVERY_S = 2.0
_NOTHING = (Spread(), Spread())


class Tallying:
    """Remembers what was told. What a backend did not take is told the next time."""

    def __init__(self, meters: Sequence[Meter], steward: Steward, clock: Callable[[], float] = time.monotonic) -> None:
        self._meters = meters
        self._steward = steward
        self._clock = clock
        self._told: dict[str, tuple[Spread, Spread]] = {}
        self._tell_at = clock() + EVERY_S
        self._troubles = Troubles(log)

    def step(self, *, at_once: bool = False) -> None:
        """Tell, if it is time; `at_once` whatever the time is."""
        now = self._clock()
        if now < self._tell_at and not at_once:
            return
        self._tell_at = now + EVERY_S
        seen = by_queue(row for meter in self._meters for row in meter.rows())
        news = {queue: measures(self._told.get(queue, _NOTHING), seen[queue]) for queue in seen}
        news = {queue: measured for queue, measured in news.items() if measured}
        if not news:
            return
        try:
            refused = self._steward.tally(news)
        except OutcomeUnknown as error:  # rather missing than counted twice
            refused = frozenset()
            self._troubles.tell(error, "counting what happened")
        except DelayqError as error:
            refused = frozenset(news)
            self._troubles.tell(error, "counting what happened")
        self._told.update((queue, seen[queue]) for queue in news if queue not in refused)
