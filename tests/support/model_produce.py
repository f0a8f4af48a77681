"""The model's producer verbs: the table of the design, row by row, with what each leaves behind."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from tests.support.model_state import ANYTHING, Job, ModelState, Place, after, exact


class Ask(NamedTuple):
    """One job to schedule."""

    id: str
    raw: bytes
    when: str
    digest: str


class Told(NamedTuple):
    """The answer to a schedule: about the job `id`, which holds the place asked for."""

    answer: str
    state: str
    due: int | None
    id: str


class Said(NamedTuple):
    """The answer to a verb on one job."""

    answer: str
    due: int | None = None
    owner: str = ""


_REFUSALS = {"absent": "unknown", "reserved": "running", "failed": "failed", "completed": "finished"}


class ProducerModel(ModelState):
    """What producers and operators ask for through delayq."""

    __slots__ = ()

    def schedule(self, asks: list[Ask], taken: str) -> list[Told]:
        """`taken` is what an id that is taken gets: kept (schedule keep) or conflict (schedule error)."""
        return [self._schedule(ask, taken) for ask in asks]

    def _schedule(self, ask: Ask, taken: str) -> Told:
        owner = self.locked_by_other(ask.digest, ask.id) or (ask.id if ask.id in self.jobs else "")
        if owner:
            return self._told(taken, owner)
        job = self._create(ask)
        head_is_due = any(other.due <= self.now for other in self.waiting if other is not job)
        if job.due <= self.now and not head_is_due and not self.paused and self.held < self.high_water:
            due = job.due
            self.to_stream(job)
            return Told("created", "ready", due, job.id)
        return self._told("created", job.id)

    def replace(self, asks: list[Ask], word: str) -> list[Told]:
        """`word`: replaced (new payload) or postponed (new due time, old payload)."""
        return [self._replace(ask, word) for ask in asks]

    def _replace(self, ask: Ask, word: str) -> Told:
        owner = self.locked_by_other(ask.digest, ask.id)
        if owner:
            return self._told("kept", owner)
        state = self.state(ask.id)
        if state == "absent":
            self._create(ask)
            return self._told("created", ask.id)
        if state == "reserved":
            return self._told("running", ask.id)
        if word == "postponed" and state in ("failed", "completed"):
            return self._told("kept", ask.id)
        job = self.jobs[ask.id]
        self.to_schedule(job, self.due_of(ask.when))
        if word == "replaced":
            job.raw, job.recoveries, job.failure, job.result = ask.raw, 0, b"", b""
            self.lock(job, ask.digest)
        return self._told(word, ask.id)

    def _create(self, ask: Ask) -> Job:
        job = Job(ask.id, ask.raw, Place.SCHEDULED, due=self.due_of(ask.when))
        self.jobs[ask.id] = job
        self.lock(job, ask.digest)
        return job

    def _told(self, answer: str, job_id: str) -> Told:
        job = self.jobs.get(job_id)  # None: a damaged id, of which only the lock is left
        return Told(
            answer, self.state(job_id), exact(job.due) if job and job.place is Place.SCHEDULED else None, job_id
        )

    def cancel(self, job_id: str, *, running: bool) -> str:
        state = self.state(job_id)
        if state in ("scheduled", "ready"):
            self.drop(job_id)
            return "cancelled"
        if state == "reserved" and running:
            self.jobs[job_id].asked = True
        return _REFUSALS[state]

    def archive(self, job_id: str, failure: bytes) -> str:
        """`failure` is what the caller says of it, JSON; the script adds when, and what failed before."""
        state = self.state(job_id)
        if state not in ("scheduled", "ready"):
            return _REFUSALS[state]
        job = self.jobs[job_id]
        self.leave_stream(job)
        self.unlock(job)
        job.place, job.at = Place.FAILED, self.now
        job.failure = after(job.failure, failure[:-1] + b',"at_ms":%d}' % self.now)
        return "archived"

    def reschedule(self, job_id: str, when: str) -> Said:
        state = self.state(job_id)
        if state not in ("scheduled", "ready"):
            return Said(_REFUSALS[state])
        job = self.jobs[job_id]
        self.to_schedule(job, self.due_of(when))
        return Said("rescheduled", job.due)

    def run_now(self, job_id: str) -> Said:
        state = self.state(job_id)
        if state == "ready":
            return Said("ready")
        if state != "scheduled":
            return Said(_REFUSALS[state])
        job = self.jobs[job_id]
        if self.paused or self.held >= self.high_water or not self.last:
            job.due = self.now
            return Said("scheduled", job.due)
        job.due = min(job.due, self.now)
        self.to_stream(job)  # which makes now of a time before 1970
        return Said("ready", job.due)

    def retry(self, job_id: str, read: bytes, raw: bytes, digest: str) -> Said:
        """`read` is the envelope the caller saw, `raw` what it made of it."""
        state = self.state(job_id)
        if state != "failed":
            return Said("unknown" if state == "absent" else "refused")
        job = self.jobs[job_id]
        if job.raw not in (read, ANYTHING):
            return Said("changed")
        owner = self.locked_by_other(digest, job_id)
        if owner:
            return Said("conflict", None, owner)
        self.to_schedule(job, self.now)
        job.raw, job.recoveries = raw, 0
        self.lock(job, digest)
        return Said("scheduled", self.now)

    def forget(self, job_ids: list[str]) -> list[str]:
        return [self._forget(job_id) for job_id in job_ids]

    def _forget(self, job_id: str) -> str:
        state = self.state(job_id)
        if state in ("failed", "completed"):
            self.drop(job_id)
            return "forgotten"
        return "unknown" if state == "absent" else "refused"

    def clear(self) -> list[str]:
        """Drop everything that waits; answers which."""
        dropped = [job_id for job_id in self.jobs if self.state(job_id) in ("scheduled", "ready")]
        for job_id in dropped:
            self.drop(job_id)
        return dropped

    def remove(self) -> None:
        """Forget the queue, which holds nothing."""
        for forgotten in (self.stream, self.pending, self.consumers, self.owners, self.recorded, self.vanished):
            forgotten.clear()
        self.last, self.layout, self.paused_until, self.tick, self.hold = "", 0, None, None, 0

    def pause(self, for_ms: int) -> int:
        self.paused_until = self.now + for_ms if for_ms else 0
        return self.paused_until

    def resume(self) -> int:
        self.paused_until = None
        return -1


def sha1(raw: bytes) -> str:
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
