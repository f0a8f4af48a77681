"""Tells the backend, every few seconds and only when there is something, what the children measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from delayq.core.activity import Spread
from delayq.core.errors import DelayqError, OutcomeUnknown
from delayq.drivers.base import Measures, Steward
from delayq.loops.troubles import Troubles
from delayq.worker.meter import Measured, Meter, by_queue, job_measures, measures, together

log = logging.getLogger("delayq.supervisor")

EVERY_S = 2.0
AT_ONCE = 50
"""Job names of a queue that one call counts; a script with more of them would keep Redis too long."""
_NOTHING = (Spread(), Spread())


class Tallying:
    """Remembers what was told. What a backend did not take is told the next time."""

    def __init__(self, meters: Sequence[Meter], steward: Steward, clock: Callable[[], float] = time.monotonic) -> None:
        self._meters = meters
        self._steward = steward
        self._clock = clock
        self._told: dict[str, tuple[Spread, Spread]] = {}
        self._told_of_jobs: dict[tuple[str, str], Measured] = {}
        self._tell_at = clock() + EVERY_S
        self._troubles = Troubles(log)

    def step(self, *, at_once: bool = False) -> None:
        """Tell, if it is time; `at_once` whatever the time is."""
        now = self._clock()
        if now < self._tell_at and not at_once:
            return
        self._tell_at = now + EVERY_S
        jobs = together(row for meter in self._meters for row in meter.rows())
        seen = by_queue(jobs.values())
        grown: dict[str, list[tuple[str, dict[str, float]]]] = {queue: [] for queue in seen}
        for (queue, job), row in jobs.items():
            if counts := job_measures(self._told_of_jobs.get((queue, job)), row):
                grown[queue].append((job, counts))
        for start in range(0, max(map(len, grown.values()), default=1) or 1, AT_ONCE):
            news = {}
            for queue, counted in grown.items():
                spreads = {} if start else measures(self._told.get(queue, _NOTHING), seen[queue])
                news[queue] = Measures(spreads, dict(counted[start : start + AT_ONCE]))
            self._tell({queue: measured for queue, measured in news.items() if any(measured)}, seen, jobs)

    def _tell(
        self,
        news: Mapping[str, Measures],
        seen: Mapping[str, tuple[Spread, Spread]],
        jobs: Mapping[tuple[str, str], Measured],
    ) -> None:
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
        for queue, measured in news.items():
            if queue not in refused:
                if measured.queue:
                    self._told[queue] = seen[queue]
                self._told_of_jobs.update(((queue, job), jobs[queue, job]) for job in measured.job_types)
