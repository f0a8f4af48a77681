"""The clock of leases and timeouts: it also runs while the machine sleeps, and all processes see the same one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

boot_clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since the machine started, where the system has such a clock."""
