"""The two ends of a migration: where jobs are taken from, and where they go.

    source   set_aside -> a lot: jobs that no worker sees any more, and that are nowhere else
    target   take(lot)  -> they are there; the same lot again is the same jobs
    source   drop(lot)

Whoever dies in between leaves a lot behind. The next run sends it again under its own name, and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from delayq.drivers.broker import Waiting


class Source(Protocol):
    """Where jobs wait. Only jobs that nobody has taken are moved; what runs, runs on and ends here."""

    def queues(self) -> list[str]:
        """The queues that hold something, or of which a lot is left."""

    def waiting(self, queue: str) -> int:
        """How many jobs wait in it, now."""

    def lots(self, queue: str) -> list[str]:
        """What an earlier run has set aside, the oldest first."""

    def set_aside(self, queue: str, lot: str, count: int) -> int:
        """Make a lot of up to `count` jobs that wait, in one step for each of them; how many. 0: none is left."""

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """What is in it, always in the same order."""

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """These have arrived: forget them here. Again is as good as once.

        The ids of those that this source has given to somebody else by now, so that they are in both places.
        """

    def put_back(self, queue: str, lot: str) -> int:
        """What is left of the lot waits in its queue again; how many."""

    def staying(self, queue: str) -> str:
        """Why some of its jobs cannot leave, in words; '' when all can."""

    def close(self) -> None:
        """Close what was opened."""


@runtime_checkable
class SetsAside(Protocol):
    """A broker that can set jobs aside; one that cannot has them reserved."""

    def source(self) -> Source:
        """Where a migration takes jobs from."""


class Target(Protocol):
    """Where jobs go."""

    remembers: bool
    """Whether a lot that is sent again after its jobs have run is known; else such jobs run twice."""

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> list[str]:
        """For each '' when it is there now, else why it cannot be. The same lot again answers the same."""

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """The source has dropped them: nobody will send this lot again."""

    def close(self) -> None:
        """Close what was opened."""
