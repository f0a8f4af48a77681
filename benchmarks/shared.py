"""Times that handlers note in their own processes, read here."""

from __future__ import annotations

import mmap
import time


class Marks:
    """One cell for each job, 0.0 until its handler wrote there; shared with every process forked later."""

    def __init__(self, count: int) -> None:
        self.wanted = count
        self.cells = memoryview(mmap.mmap(-1, 8 * count)).cast("d")

    def taken(self) -> list[float]:
        """What was noted so far, in order of the cells."""
        return [cell for cell in self.cells.tolist() if cell]

    def wait(self, seconds: float) -> None:
        """Until every cell is written; a job that never comes is an error and no figure."""
        deadline = time.monotonic() + seconds
        while (found := len(self.taken())) < self.wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {found} of {self.wanted} jobs started")
            time.sleep(0.05)
