"""Keeps an outage from filling the log: the first of a kind at once, then one every few seconds with a count."""

from __future__ import annotations

import time
from collections.abc import Callable


class LogLimit:
    """One limiter per loop; `every_s` between two lines of one kind."""

    def __init__(self, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def may_log(self, kind: str) -> int:
        """0 = keep quiet; else how many of this kind the line stands for, itself included."""
        last, hidden = self._kinds.get(kind, (float("-inf"), 0))
        now = self._clock()
        if now - last < self._every_s:
            self._kinds[kind] = (last, hidden + 1)
            return 0
        self._kinds[kind] = (now, 0)
        return hidden + 1
