"""The clock of leases and timeouts: it also runs while the machine sleeps, and all processes see the same one."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> float:
    """Seconds since the machine started, where the system has such a clock."""
    return time.clock_gettime(_CLOCK)
