"""Tells now and then how far a long command is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from delayq.cli.words import span

EVERY_S: Final = 5.0


class Headway:
    """Counts steps and says so every few seconds. `total` 0 = nobody knows how many there will be."""

    def __init__(self, say: Callable[[str], None], total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._total = total
        self._clock = clock
        self._began = self._said = clock()
        self._done = 0

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        now = self._clock()
        if now - self._said < EVERY_S:
            return
        self._said = now
        left = self._total - self._done
        if left <= 0:
            self._say(f"{self._done:,} done so far.")
            return
        left_ms = round((now - self._began) / self._done * left * 1000)
        self._say(f"{self._done:,} of {self._total:,} done; about {span(left_ms)} left.")
