"""The two ends of a migration: where jobs are taken from, and where they go.

    target   ready, refuses     looked at before anything is touched: a job it refuses never leaves its queue
    source   set_aside -> a lot: jobs that no worker sees any more, and that are nowhere else
    target   take(lot)          what becomes of each stands in a `Taking`; the same lot again is the same jobs
    source   drop what arrived, put_back what did not

Whoever is killed in between leaves a lot behind. The next run sends it again under its own name, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from delayq.drivers.broker import Waiting
from delayq.drivers.migrating.taking import Taking

Stays: TypeAlias = Callable[[Waiting], str]
"""Why a job cannot go; '' = it can."""


class Source(Protocol):
    """Where jobs wait. Only jobs that nobody has taken are moved; what runs, runs on and ends here."""

    comes_back: bool
    """Whether what a dead run had in hand waits here again by itself, so that no lot tells that it may have arrived."""

    def queues(self) -> list[str]:
        """The queues that hold something, or of which a lot is left."""

    def waiting(self, queue: str) -> int:
        """How many jobs wait in it, now."""

    def lots(self, queue: str) -> list[str]:
        """What an earlier run has set aside, the oldest first."""

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """Make a lot of up to `count` jobs that wait and may go, in one step for each of them; how many.

        0: none is left that may.
        """

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """What is in it, always in the same order. Their `entry` tells them apart, also two of one id."""

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """These have arrived: forget them here. Again is as good as once.

        The ids of those that this source has given to somebody else by now, so that they are in both places.
        """

    def put_back(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Mapping[str, str]:
        """These wait in their queue again. The entries of those that cannot, with the reason; they stay in the lot."""

    def let_go(self, queue: str) -> None:
        """The run is over: give back what was held for its sake only."""

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

    def ready(self, queue: str) -> None:
        """Look whether it takes jobs for that queue now. Raises as a push would: away, no table, no such name."""

    def refuses(self, queue: str, job: Waiting) -> str:
        """Why it cannot hold this job, as far as that can be told without sending it; '' = nothing is known."""

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting], taking: Taking, *, again: bool) -> None:
        """Send them, and write down what became of each; also of those before an error, which is raised.

        `again`: an earlier run may have sent this lot. The same lot again is answered the same.
        """

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """The source has dropped them: nobody will send this lot again."""

    def close(self) -> None:
        """Close what was opened."""
