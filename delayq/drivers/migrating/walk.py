"""Round after round through what waits in a queue, until a whole round finds nothing more that may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delayq.drivers.broker import Waiting, WaitingPage
from delayq.drivers.migrating.ends import Stays

Page = Callable[[str, int], WaitingPage]
"""Jobs that wait: from a cursor on, so many at most. The first one is ''."""
Move = Callable[[Sequence[Waiting]], int]
"""Takes them out of the queue; how many still waited there."""


class Walk:
    """Through one queue. What is scheduled behind its back is found in the next round."""

    def __init__(self) -> None:
        self._cursor = ""
        self._moved = False

    def step(self, page: Page, move: Move, count: int, stays: Stays) -> int:
        """Go on until something moves; how many. 0: a whole round moved nothing."""
        while True:
            found = page(self._cursor, count)
            going = [job for job in found.jobs if not stays(job)]
            moved = move(going) if going else 0
            self._moved = self._moved or moved > 0
            self._cursor = found.cursor
            if not found.cursor:
                if not self._moved:
                    return 0
                self._moved = False
            if moved:
                return moved
