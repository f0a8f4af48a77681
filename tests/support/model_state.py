"""The model's memory: what a queue should hold. Plain Python, written from the design; it calls nothing of delayq.

Only the server can name stream entries. So a job that should join the stream is put on `awaited`; the check after
each step reads the new tail of the stream, compares it with that list, and gives the jobs their entries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from tests.support.model_view import delivered

_OWN_NAME = re.compile(r"dq:[^:]+:\d+:\w+")
ANYTHING = b"?"
HISTORY = b',"history":['
MOST_HISTORY = 9


class Place(StrEnum):
    SCHEDULED = "scheduled"
    STREAM = "stream"
    FAILED = "failed"
    COMPLETED = "completed"


@dataclass(slots=True)
class Job:
    """One job. `due` stays known while it is in the stream.

    `raw` or `failure` ANYTHING: the model does not foretell those bytes; `failure` b'' means none.
    """

    id: str
    raw: bytes
    place: Place
    due: int = 0
    entry: str = ""
    at: int = 0
    recoveries: int = 0
    digest: str = ""
    asked: bool = False
    failure: bytes = b""
    result: bytes = b""


@dataclass(slots=True)
class Row:
    """A pending entry: who holds it and how long it has been silent, by the virtual clock."""

    consumer: str
    idle: int = 0


@dataclass(slots=True)
class ModelState:
    """A queue as it should be."""

    lease: int
    max_recoveries: int
    high_water: int
    now: int
    latest: int = 0
    """The latest the clock ever showed."""
    layout: int = 0
    """The epoch of the layout that the shard knows."""
    paused_until: int | None = None
    tick: int | None = None
    hold: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    stream: dict[str, str] = field(default_factory=dict)
    """Entry to the job it is the place of, '' for one that is nobody's; in order."""
    last: str = ""
    pending: dict[str, Row] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)
    owners: dict[str, str] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    awaited: list[str] = field(default_factory=list)

    def state(self, job_id: str) -> str:
        """In the words of the design's table."""
        job = self.jobs.get(job_id)
        if job is None:
            return "absent"
        if job.place is not Place.STREAM:
            return str(job.place)
        return "reserved" if job.entry and self.is_delivered(job.entry) else "ready"

    def is_delivered(self, entry: str) -> bool:
        return delivered(entry, self.last)

    def owns(self, job_id: str, entry: str) -> bool:
        """Whether this entry is the lease of that job: the one question every settling verb asks first."""
        job = self.jobs.get(job_id)
        return job is not None and job.place is Place.STREAM and job.entry == entry

    @property
    def paused(self) -> bool:
        return self.paused_until is not None and (self.paused_until == 0 or self.now < self.paused_until)

    @property
    def held(self) -> int:
        """How many entries the stream holds."""
        return len(self.stream) + len(self.awaited)

    @property
    def waiting(self) -> list[Job]:
        """What is in the scheduled set, in its order."""
        found = [job for job in self.jobs.values() if job.place is Place.SCHEDULED]
        return sorted(found, key=lambda job: (job.due, job.id))

    @property
    def undelivered(self) -> list[str]:
        """Entries that the next read will hand out, in order."""
        return [entry for entry in self.stream if not self.is_delivered(entry)]

    @property
    def foreign(self) -> bool:
        """Whether the group has a consumer that is not delayq's own."""
        return any(not own_name(name) for name in self.consumers)

    def due_of(self, when: str) -> int:
        """A time in the past means now."""
        return max(self.now, self.now + int(when) if when.startswith("+") else int(when))

    def to_stream(self, job: Job) -> None:
        job.due = self.now if job.due < 0 else job.due
        job.place, job.entry = Place.STREAM, ""
        self.awaited.append(job.id)

    def deliver_again(self, job: Job) -> None:
        """Under a new entry; what it was asked it is still asked."""
        asked = job.asked
        self.leave_stream(job)
        self.to_stream(job)
        job.asked = asked

    def to_schedule(self, job: Job, due: int) -> None:
        self.leave_stream(job)
        job.place, job.due = Place.SCHEDULED, due

    def leave_stream(self, job: Job) -> None:
        """The entry ends: acknowledged, deleted, and nobody is asked to stop any more, unless it is delivered again."""
        self.stream.pop(job.entry, None)
        self.pending.pop(job.entry, None)
        if job.id in self.awaited:
            self.awaited.remove(job.id)
        job.entry, job.asked = "", False

    def lock(self, job: Job, digest: str) -> None:
        self.unlock(job)
        if digest:
            self.owners[digest] = job.id
            job.digest = digest

    def unlock(self, job: Job) -> None:
        if job.digest and self.owners.get(job.digest) == job.id:
            del self.owners[job.digest]
        job.digest = ""

    def drop(self, job_id: str) -> None:
        """The job is forgotten; its id is free."""
        job = self.jobs.pop(job_id)
        self.leave_stream(job)
        self.unlock(job)

    def locked_by_other(self, digest: str, job_id: str) -> str:
        """The id that owns a digest, if that is another one; else ''. Only a job that waits or runs owns anything."""
        owner = self.owners.get(digest, "") if digest else ""
        alive = self.state(owner) in ("scheduled", "ready", "reserved")
        return owner if alive and owner != job_id else ""


def after(before: bytes, failure: bytes) -> bytes:
    """A failure with the one before it, and all before that, in its history; a history has nine at most."""
    if not before:
        return failure
    if before == ANYTHING:
        return ANYTHING
    older = before.partition(HISTORY)[2]
    kept = older.removesuffix(b"]}") if before.count(HISTORY) >= MOST_HISTORY else before
    return failure[:-1] + HISTORY + kept + b"]}"


def exact(due: int) -> int:
    """A due time as clients are told of it: within what a number of JSON holds exactly."""
    return max(1 - 2**53, min(2**53 - 1, due))


def own_name(consumer: str) -> bool:
    """Whether a consumer's name has the form that only delayq's own have."""
    return _OWN_NAME.fullmatch(consumer) is not None
