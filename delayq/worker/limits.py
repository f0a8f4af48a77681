"""When a worker has done enough."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from delayq.worker.options import StopReason, WorkerOptions

MANY = 1_000_000_000
MEMORY_CHECK_S = 1.0
_STATM = Path("/proc/self/statm")


class Limits:
    """Counts jobs and time, and names the reason to stop. Checked between batches, in Laravel's order."""

    def __init__(self, options: WorkerOptions) -> None:
        self.jobs = 0
        self._options = options
        self._started = time.monotonic()
        self._memory_at = 0.0

    def reason(self, interrupted: bool) -> StopReason | None:
        """Why to stop now; None to go on."""
        options = self._options
        if interrupted:
            return StopReason.INTERRUPTED
        if options.memory_mb and self._memory_over():
            return StopReason.MEMORY
        if options.max_time_ms and (time.monotonic() - self._started) * 1000 >= options.max_time_ms:
            return StopReason.MAX_TIME
        if options.max_jobs and self.jobs >= options.max_jobs:
            return StopReason.MAX_JOBS
        if options.once and self.jobs:
            return StopReason.ONCE
        return None

    def jobs_left(self) -> int:
        """How many more jobs may be started."""
        most = 1 if self._options.once else (self._options.max_jobs or MANY)
        return max(0, most - self.jobs)

    def _memory_over(self) -> bool:
        now = time.monotonic()
        if now < self._memory_at:
            return False
        self._memory_at = now + MEMORY_CHECK_S
        return resident_mb() >= self._options.memory_mb


def resident_mb() -> float:
    """Memory this process has in use, in MB: what is resident now, or its peak where the system tells only that."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
