"""What the processes of a worker, or of `delayq move`, count beside attempts, in memory that all of them share.

Made before the first fork. Each cell has one writer, and is stored in one piece.
"""

from __future__ import annotations

import mmap
import time
from enum import IntEnum
from typing import Final

from delayq.drivers.base import Promotion, Tidied
from delayq.loops.loop import Role


class Count(IntEnum):
    """Numbers that only grow, but for the children that live."""

    PROMOTED = 0
    LOST = 1
    RECLAIMED = 2
    CHILDREN = 3
    DEATHS = 4
    CLOSED = 5
    REDELIVERED = 6
    MENDED = 7
    BURIED = 8
    UNHEALED = 9
    REGROUPED = 10


LOOPS: Final = ("mover", "janitor", "relay")
_TIMES: Final = len(Count)


class Vitals:
    """The memory."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, 8 * (_TIMES + len(LOOPS))))
        self._ints, self._floats = memory.cast("q"), memory.cast("d")
        self.began = time.time()

    def add(self, count: Count, number: int) -> None:
        """So many more."""
        if number:
            self._ints[count] += number

    def set(self, count: Count, number: int) -> None:
        """So many."""
        self._ints[count] = number

    def get(self, count: Count) -> int:
        """How many; from any process."""
        return self._ints[count]

    def promoted(self, promotion: Promotion) -> None:
        """A mover's step."""
        self.add(Count.PROMOTED, promotion.moved)
        self.add(Count.LOST, promotion.lost)

    def tidied(self, tidied: Tidied) -> None:
        """A janitor's."""
        self.add(Count.RECLAIMED, tidied.reclaimed)
        self.add(Count.CLOSED, tidied.closed)
        self.add(Count.REDELIVERED, tidied.redelivered)
        self.add(Count.MENDED, tidied.mended)
        self.add(Count.BURIED, tidied.buried)
        self.add(Count.UNHEALED, tidied.unhealed)
        self.add(Count.REGROUPED, tidied.regrouped)

    def beat(self, loop: str) -> None:
        """This loop has done a step, without an error."""
        self._floats[_TIMES + LOOPS.index(loop)] = time.time()

    def beats(self) -> dict[str, float]:
        """When each loop that runs here did its last step; epoch seconds."""
        return {loop: at for n, loop in enumerate(LOOPS) if (at := self._floats[_TIMES + n])}


class Beating:
    """A role whose steps are noted."""

    def __init__(self, role: Role, vitals: Vitals) -> None:
        self.name = role.name
        self._role = role
        self._vitals = vitals

    def run_once(self) -> float:
        """One step."""
        pause_s = self._role.run_once()
        self._vitals.beat(self.name)
        return pause_s

    def sleep(self, seconds: float) -> None:
        """As the role does."""
        self._role.sleep(seconds)

    def close(self) -> None:
        """As the role does."""
        self._role.close()
