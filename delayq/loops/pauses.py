"""How long to wait before trying again what failed: a little at first, longer each time, two seconds at most."""

from __future__ import annotations

FIRST_S = 0.05
LONGEST_S = 2.0


class Pauses:
    """Counts `failures` in a row and gives the pause after each."""

    def __init__(self) -> None:
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self.failures - 1, 10))

    def reset(self) -> None:
        """It worked."""
        self.failures = 0
