"""The clock of leases and timeouts: it also runs while the machine sleeps, and all processes see the same one.

A process can stand still as a whole: SIGSTOP, a paused virtual machine, a laptop that sleeps. Leases go on meanwhile,
because Redis does; timeouts do not, because the job could not work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

boot_clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since the machine started, where the system has such a clock."""

STANDSTILL_S = 0.5
"""A process that was kept from running for longer than that stood still; a shorter time is a busy machine."""


class Standstill:
    """Notices that this process stood still, by steps that took longer than they can take."""

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self._clock = clock
        self._at = clock()

    def step(self, longest_s: float) -> float:
        """End a step that takes `longest_s` at most; return its seconds if the process stood still in it, else 0.0."""
        before, self._at = self._at, self._clock()
        took_s = self._at - before
        return took_s if took_s > longest_s + STANDSTILL_S else 0.0
