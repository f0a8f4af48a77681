"""What a fake has taken, and which ids and unique keys are taken by it: as a queue would answer, without one."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase

from delayq.core import envelope as envelopes
from delayq.core.batches import BatchInfo
from delayq.core.follow import ids_of
from delayq.core.followups import Plan
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict, State
from delayq.core.unique import word_of
from delayq.core.views import JobRef
from delayq.jobs.running import wall_ms
from delayq.testing.pushed import Batched, Pushed, What, batched, named

_TAKEN = {
    OnConflict.KEEP: Answer.KEPT,
    OnConflict.REPLACE: Answer.REPLACED,
    OnConflict.POSTPONE: Answer.POSTPONED,
    OnConflict.ERROR: Answer.CONFLICT,
}


class Book:
    """The jobs taken, in order. Which ones are taken at all is said with `only` and `but`: names or patterns."""

    def __init__(self) -> None:
        self.only: tuple[str, ...] = ()
        self.but: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str, str], Pushed] = {}
        self._unique: dict[tuple[str, str, str], str] = {}
        self._batches: dict[str, tuple[Batched, BatchInfo]] = {}

    def wants(self, name: str) -> bool:
        """Whether a job of that name is taken; else it goes where it would have gone."""
        if self.only and not any(fnmatchcase(name, pattern) for pattern in self.only):
            return False
        return not any(fnmatchcase(name, pattern) for pattern in self.but)

    @property
    def partial(self) -> bool:
        """Whether some jobs are really sent."""
        return bool(self.only or self.but)

    def choose(self, only: tuple[What, ...], but: tuple[What, ...]) -> None:
        """Take these jobs only; leave those."""
        self.only, self.but = tuple(map(named, only)), tuple(map(named, but))

    def all(self) -> list[Pushed]:
        """What was taken, in order."""
        with self._lock:
            return list(self._taken.values())

    def clear(self) -> None:
        """Forget it; ids and unique keys are free again."""
        with self._lock:
            self._taken.clear()
            self._batches.clear()
            self._unique.clear()

    def batches(self) -> list[Batched]:
        """The batches taken, in order."""
        with self._lock:
            return [one for one, _ in self._batches.values()]

    def batch(self, batch_id: str) -> BatchInfo | None:
        """How a batch that was taken stands: nothing of it has run. None for another one."""
        with self._lock:
            known = self._batches.get(batch_id)
        return None if known is None else known[1]

    def take_batch(self, connection: str, plan: Plan) -> BatchInfo | None:
        """Write a batch down, unless it is there already; None when none of its jobs is taken."""
        batch = batched(connection, plan)
        if batch.members and not any(map(self._wants_part, batch.members)):
            return None
        pending = len(ids_of(plan.members))
        info = BatchInfo(plan.id, plan.name, pending, 0, 0, 0, wall_ms(), None, None, plan.allow_failures, plan.owner)
        with self._lock:
            return self._batches.setdefault(plan.id, (batch, info))[1]

    def _wants_part(self, part: Pushed | Batched) -> bool:
        return any(map(self._wants_part, part.members)) if isinstance(part, Batched) else self.wants(part.name)

    def take(self, connection: str, job: Prepared, on_conflict: OnConflict) -> JobRef:
        """Write a job down; the answer is the one a queue would give while the jobs before it wait."""
        now_ms = wall_ms()
        delay_ms = int(job.when) if job.when[0] == "+" else None
        due_ms = max(now_ms, int(job.when) if delay_ms is None else now_ms + delay_ms)
        entry = Pushed(connection, job.queue, envelopes.decode(job.envelope), job.envelope, delay_ms, due_ms)
        with self._lock:
            here = (connection, job.queue)
            owner = self._unique.get((*here, job.digest), job.id) if job.digest else job.id
            there = self._taken.get((*here, owner))
            if job.quiet is not None:
                return self._debounce(here, entry, there)
            if there is None:
                outcome = Answer.CREATED
            else:
                outcome = _TAKEN[on_conflict] if owner == job.id else _of_another(on_conflict)
                if outcome is Answer.POSTPONED:
                    entry = Pushed(connection, job.queue, there.envelope, there.raw, delay_ms, due_ms)
                elif outcome is not Answer.REPLACED:
                    entry = there
            if entry is not there:
                self._write(here, entry)
        state = State.READY if entry.due_ms <= now_ms else State.SCHEDULED
        return JobRef(entry.id, job.queue, state, entry.due_ms, outcome, entry.name)

    def _debounce(self, here: tuple[str, str], entry: Pushed, there: Pushed | None) -> JobRef:
        """Write a job down in the place of the one with the same key."""
        if there is not None:
            del self._taken[(*here, there.id)]
        self._write(here, entry)
        outcome, before = (Answer.CREATED, "") if there is None else (Answer.DEBOUNCED, there.id)
        return JobRef(entry.id, entry.queue, State.SCHEDULED, entry.due_ms, outcome, entry.name, before)

    def _write(self, here: tuple[str, str], entry: Pushed) -> None:
        """Keep it in the place of the one it replaces, and with the unique key of its own."""
        for key in [key for key, owner in self._unique.items() if key[:2] == here and owner == entry.id]:
            del self._unique[key]
        if entry.envelope.unique:
            self._unique[(*here, word_of(entry.envelope.unique))] = entry.id
        self._taken[(*here, entry.id)] = entry


def _of_another(on_conflict: OnConflict) -> Answer:
    """The answer to a unique key that another job owns."""
    return Answer.CONFLICT if on_conflict is OnConflict.ERROR else Answer.KEPT
