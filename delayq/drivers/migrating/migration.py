"""The migration itself: lot by lot, queue by queue, until the source has nothing left that waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from delayq.core.durations import format_duration
from delayq.core.errors import Conflict
from delayq.core.names import made_at_ms, new_id
from delayq.drivers.broker import Waiting
from delayq.drivers.migrating.ends import Source, Target

LOT: Final = 250
SURE_MS: Final = 6 * 86_400_000
"""How long a lot may lie between two runs: a target remembers it a day longer."""


@dataclass(slots=True)
class Migrated:
    """What became of one queue: jobs taken out of it, jobs that arrived, and those put back with the reason of each.

    `doubled`: jobs that arrived, and that the source has given to somebody else meanwhile.
    """

    queue: str
    waiting: int
    taken: int = 0
    moved: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    staying: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every job that was taken out is accounted for, and is in one place."""
        return self.taken == self.moved + len(self.refused) and not self.doubled


Told = Callable[[Migrated], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """`told` hears of every lot. `resend`: also what lies so long that it may have run at its target already."""

    source: Source
    target: Target
    told: Told
    now_ms: Callable[[], int]
    resend: bool = False

    def run(self, queue: str, to: str) -> Migrated:
        """Move what waits in `queue` to the target's queue `to`; first what an earlier run has left.

        Raises `Conflict` for a lot that is too old, and `BackendError`; run it again after either.
        """
        found = Migrated(queue, self.source.waiting(queue))
        left = self.source.lots(queue)
        for lot in left:
            self._refuse_old(queue, lot)
        kept: list[str] = []
        for lot in left:
            kept += self._send(found, to, lot)
        while self.source.set_aside(queue, lot := new_id(), LOT):
            kept += self._send(found, to, lot)
        for lot in kept:
            self.source.put_back(queue, lot)
        found.staying = self.source.staying(queue)
        return found

    def _send(self, found: Migrated, to: str, lot: str) -> list[str]:
        """Send a lot and drop what has arrived; the lot, if something is left of it."""
        jobs = self.source.lot(found.queue, lot)
        found.taken += len(jobs)
        answers = self.target.take(to, lot, jobs) if jobs else []
        arrived: Sequence[Waiting] = [job for job, why in zip(jobs, answers, strict=True) if not why]
        found.doubled += self.source.drop(found.queue, lot, arrived)
        self.target.settled(to, lot, jobs)
        found.moved += len(arrived)
        found.refused.update((job.id, why) for job, why in zip(jobs, answers, strict=True) if why)
        self.told(found)
        return [lot] if len(arrived) < len(jobs) else []

    def _refuse_old(self, queue: str, lot: str) -> None:
        age_ms = self.now_ms() - made_at_ms(lot)
        if self.target.remembers and not self.resend and age_ms > SURE_MS:
            raise Conflict(
                f"Jobs of {queue} were set aside {format_duration(age_ms // 1000 * 1000)} ago by a run that did not "
                "end, and their target may have forgotten whether it got them.",
                hint="Look there for what ran since; then --resend sends them again.",
            )
