"""The time of the server. Between two reads, the elapsed time is measured with the monotonic clock of this machine."""

import time
from collections.abc import Callable
from typing import Final

READ_EVERY: Final = 60.0
"""Seconds after which the time of the server is read again."""

MAX_DRIFT: Final = 1.0
"""If the wall clock and the monotonic clock drift apart by more than this many seconds, the machine was suspended, or
its wall clock was set. Then the time of the server is read again."""


class ServerClock:
    """The time of the server: the last time that was read, plus the monotonic time that has passed since.

    So the time does not jump if the wall clock of this machine is set while the process runs.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._drift_base = wall_clock() - clock()
        self._ahead_ms = self._drift_base * 1000
        self._due_at = -1.0

    def set(self, server_ms: int) -> None:
        """Store the present time of the server, in epoch ms."""
        now = self._clock()
        self._ahead_ms = server_ms - now * 1000
        self._drift_base = self._wall_clock() - now
        self._due_at = now + READ_EVERY

    def expire(self) -> None:
        """Let `is_due` return True, because after an outage, another server may answer."""
        self._due_at = -1.0

    def is_due(self) -> bool:
        """Return True if the time of the server should be read again."""
        now = self._clock()
        return now >= self._due_at or abs(self._wall_clock() - now - self._drift_base) > MAX_DRIFT

    def now_ms(self) -> int:
        """Return the time of the server, in epoch ms. Before the first `set`, return the time of this machine."""
        return int(self._clock() * 1000 + self._ahead_ms)
