"""When not to take back what looks abandoned: after a standstill everybody's leases are over, and nobody is dead.

A command queued while the database stood still, a machine that slept, a clock that was set: the workers are about to
renew. So whoever looks waits one lease after each of these, and when it looks for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Watch:
    """Of one process. Times are epoch ms by the database; `lease_ms` is that of its jobs."""

    def __init__(self, lease_ms: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lease_ms = lease_ms
        self._monotonic = monotonic
        self._skew_ms: float | None = None
        self._hold_until = 0.0
        self._look_at = float("-inf")

    @property
    def every_s(self) -> float:
        """How long between two looks."""
        return min(1.0, self._lease_ms / 3000)

    def time_to_look(self) -> bool:
        """Whether it is time to look again."""
        now = self._monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + self.every_s
        return True

    def may_take_back(self, database_ms: int, asked_at: float) -> bool:
        """Whether what is over now may be taken back. `asked_at`: when the database was asked for its time."""
        now = self._monotonic()
        skew_ms = database_ms - now * 1000
        stepped = self._skew_ms is None or abs(skew_ms - self._skew_ms) > self._lease_ms / 2
        stood_still = (now - asked_at) * 1000 > self._lease_ms / 2
        self._skew_ms = skew_ms
        if stepped or stood_still:
            self._hold_until = now + self._lease_ms / 1000
        return now >= self._hold_until
