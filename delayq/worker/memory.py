"""How much memory a process has in use."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECK_S = 1.0
_STATM = Path("/proc/self/statm")


class MemoryLimit:
    """Whether this process is over `limit_mb` (0 = no limit); looked at once a second, and said in between."""

    def __init__(self, limit_mb: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_mb = limit_mb
        self._clock = clock
        self._look_at = float("-inf")
        self._over = False

    def exceeded(self) -> bool:
        """Whether it is, or was a moment ago."""
        if self._limit_mb and (now := self._clock()) >= self._look_at:
            self._look_at = now + CHECK_S
            self._over = resident_mb() >= self._limit_mb
        return self._over


def resident_of(pid: int) -> int | None:
    """Bytes that another process has resident; None where the system does not tell, or when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None


def resident_mb() -> float:
    """Memory this process has in use, in MB: what is resident now, or its peak where the system tells only that."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
