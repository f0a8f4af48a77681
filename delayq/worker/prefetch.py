"""How many deliveries to read at once: about 20 ms worth of work, by what was measured.

Too few, and round trips cost more than the work; too many, and jobs wait here while another worker
is free. A wrong guess is mended by the keeper, which hands back what waits behind a slow job.
"""

from __future__ import annotations

WORTH_S = 0.020
# As many as one call settles (`redis/calls/produce.py`).
MOST = 250
MOST_BYTES = 4_000_000
WEIGHT = 0.3


class Prefetch:
    """Starts with one delivery and follows the measured pace."""

    def __init__(self) -> None:
        self._job_s = WORTH_S
        self._job_bytes = 0.0

    def count(self) -> int:
        """Deliveries to ask for next."""
        by_time = WORTH_S / max(self._job_s, 1e-9)
        by_size = MOST_BYTES / max(self._job_bytes, 1.0)
        return max(1, min(MOST, int(by_time), int(by_size)))

    def observe(self, jobs: int, seconds: float, size: int) -> None:
        """`jobs` took `seconds` together and brought `size` bytes."""
        if jobs:
            self._job_s += WEIGHT * (seconds / jobs - self._job_s)
            # A large payload counts at once: the next read may bring as many as this one did.
            self._job_bytes = max(size / jobs, self._job_bytes + WEIGHT * (size / jobs - self._job_bytes))
