"""The migration itself: lot by lot, queue by queue, until the source has nothing left that may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from delayq.core.durations import format_duration
from delayq.core.errors import Conflict
from delayq.core.names import made_at_ms, new_id
from delayq.drivers.broker import Waiting
from delayq.drivers.migrating.ends import Source, Stays, Target
from delayq.drivers.migrating.taking import Arrival, Taking

LOT: Final = 250
SURE_MS: Final = 6 * 86_400_000
"""How long a lot may lie between two runs: a target remembers it a day longer."""
_ID: Final = len(new_id())


@dataclass(slots=True)
class Migrated:
    """What became of one queue.

    `taken`: jobs set aside, also by an earlier run. `moved`: they arrived. `back`: they wait here again. `left`: they
    are still aside, because nobody knows whether they arrived, or because their id is taken here by now.
    `refused`: why a job stays here, by its id, whether it was set aside before or never.
    `doubled`: jobs that arrived, and that the source has given to somebody else meanwhile.
    """

    queue: str
    waiting: int = 0
    taken: int = 0
    moved: int = 0
    back: int = 0
    left: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    staying: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every job that was taken out is accounted for, and is in one place."""
        return self.taken == self.moved + self.back + self.left and not self.doubled


Told = Callable[[Migrated], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """From `source` to `target`, which people know as `name`. `done` tells of every queue begun, also after an error.

    `told` hears of every lot. `stopped` is asked between two lots. `resend`: also what an earlier run sent elsewhere,
    or so long ago that it may have run at its target already.
    """

    source: Source
    target: Target
    told: Told
    now_ms: Callable[[], int]
    name: str = ""
    resend: bool = False
    stopped: Callable[[], bool] = lambda: False
    done: list[Migrated] = field(default_factory=list)

    def check(self, queue: str, to: str) -> None:
        """Look whether jobs of `queue` could go to `to`, before any does. Raises as `run`."""
        for lot in self.source.lots(queue):
            self._refuse_lot(queue, to, lot)
        self.target.ready(to)

    def run(self, queue: str, to: str) -> Migrated:
        """Move what waits in `queue` to the target's queue `to`; first what an earlier run has left.

        Raises `Conflict` for a lot that nobody may send again, and what the target or the source raise. By then all
        that surely did not arrive waits in its queue again; what may have arrived is left to the next run.
        """
        self.check(queue, to)
        found = Migrated(queue, self.source.waiting(queue))
        self.done.append(found)
        try:
            for lot in self.source.lots(queue):
                self._send(found, to, lot, self.source.lot(queue, lot), again=True)
            self._move_on(found, to)
        finally:
            self.source.let_go(queue)
        found.staying = self.source.staying(queue)
        return found

    def _move_on(self, found: Migrated, to: str) -> None:
        stays, tail = self._stays(found, to), _tail(self.name, to)
        while not self.stopped():
            lot = f"{new_id()}{tail}"
            try:
                if not self.source.set_aside(found.queue, lot, LOT, stays):
                    return
                jobs = self.source.lot(found.queue, lot)
            except BaseException as error:
                self._undo(found, lot, error)
                raise
            self._send(found, to, lot, jobs)

    def _stays(self, found: Migrated, to: str) -> Stays:
        def stays(job: Waiting) -> str:
            why = found.refused.get(job.id) or job.unreadable or self.target.refuses(to, job)
            if why:
                found.refused[job.id] = why
            return why

        return stays

    def _send(self, found: Migrated, to: str, lot: str, jobs: Sequence[Waiting], *, again: bool = False) -> None:
        """Send a lot; drop what has arrived, and put back what surely has not."""
        found.taken += len(jobs)
        found.left += len(jobs)
        taking = Taking(len(jobs))
        try:
            self.target.take(to, lot, jobs, taking, again=again or self.source.comes_back)
        except BaseException as error:
            try:
                self._account(found, lot, jobs, taking, again=again)
            except Exception as also:
                raise error from also
            raise
        self._account(found, lot, jobs, taking, again=again)
        self.target.settled(to, lot, jobs)
        self.told(found)

    def _account(self, found: Migrated, lot: str, jobs: Sequence[Waiting], taking: Taking, *, again: bool) -> None:
        """What was not sent now may have been sent by the run before: only a refusal is sure of such a lot."""
        arrived = [jobs[place] for place in taking.places(Arrival.THERE)]
        found.doubled += self.source.drop(found.queue, lot, arrived)
        found.moved += len(arrived)
        found.left -= len(arrived)
        found.refused.update((jobs[place].id, why) for place, why in taking.whys.items())
        sure = (Arrival.REFUSED,) if again else (Arrival.REFUSED, Arrival.UNSENT)
        self._put_back(found, lot, [jobs[place] for place in taking.places(*sure)])

    def _put_back(self, found: Migrated, lot: str, jobs: Sequence[Waiting]) -> None:
        if not jobs:
            return
        stuck = self.source.put_back(found.queue, lot, jobs)
        found.refused.update((job.id, stuck[job.entry]) for job in jobs if job.entry in stuck)
        found.back += len(jobs) - len(stuck)
        found.left -= len(jobs) - len(stuck)

    def _undo(self, found: Migrated, lot: str, error: BaseException) -> None:
        """A lot that was never sent, because setting it aside or reading it went wrong, goes back as it is."""
        try:
            jobs = self.source.lot(found.queue, lot)
            found.taken += len(jobs)
            found.left += len(jobs)
            self._put_back(found, lot, jobs)
        except Exception as also:
            raise error from also

    def _refuse_lot(self, queue: str, to: str, lot: str) -> None:
        if self.resend:
            return
        age_ms, tail = self.now_ms() - made_at_ms(lot[:_ID]), lot[_ID:]
        if tail and tail != _tail(self.name, to):
            raise Conflict(
                f"Jobs of {queue} were set aside by a run to another connection or queue that did not end, and may "
                "have arrived there.",
                hint="Run that one again; or look there, and then --resend sends them to this one.",
            )
        if self.target.remembers and age_ms > SURE_MS:
            raise Conflict(
                f"Jobs of {queue} were set aside {format_duration(age_ms // 1000 * 1000)} ago by a run that did not "
                "end, and their target may have forgotten whether it got them.",
                hint="Look there for what ran since; then --resend sends them again.",
            )


def _tail(name: str, to: str) -> str:
    """What a lot is called behind its time: where it goes."""
    return f"-{crc32(f'{name} {to}'.encode()):08x}"
