"""The jobs of one queue in the fake. Each method returns the same as the Lua script of its name."""

from typing import Any, Literal

from delayq.testing.recorded import FakeJob

Row = list[Any]
"""The row of a new job in a call of `schedule` or `replace`: id, envelope, due time, unique key."""

Answered = tuple[str, str, str, str]
"""The answer for a new job: the outcome, its state, its due time in epoch ms or '', and its id."""


class FakeQueue:
    """Jobs by id, and unique keys. Jobs change their state only by calls, because no worker runs them.

    `record`: the list of all jobs of the fake; new jobs are added to it.
    """

    def __init__(self, name: str, record: list[FakeJob]) -> None:
        self._name = name
        self._record = record
        self._jobs: dict[str, FakeJob] = {}
        self._owners: dict[str, tuple[str, int | None]] = {}

    def has(self, job_id: str) -> bool:
        """Return True if the queue has the job."""
        return job_id in self._jobs

    def get(self, job_id: str) -> FakeJob | None:
        """Return a job, or None."""
        return self._jobs.get(job_id)

    def schedule(self, row: Row, now_ms: int, taken: str) -> Answered:
        """Store a new job, unless its id or its unique key is taken."""
        job_id, raw, when, lock = row
        owner = self._owner(lock, job_id, now_ms)
        known = self._jobs.get(owner or job_id)
        if owner or known is not None:
            state = "absent" if known is None else known.state
            return taken, state, _due_of(known), owner or job_id
        job = self._add(job_id, raw, _due(when, now_ms), now_ms)
        job.state = "ready" if job.due_ms <= now_ms else "scheduled"
        self._take_lock(lock, job_id, now_ms)
        return "created", job.state, str(job.due_ms), job_id

    def replace(self, row: Row, now_ms: int, word: Literal["replaced", "postponed"]) -> Answered:
        """Store a job even if its id is taken; see replace.lua."""
        job_id, raw, when, lock = row
        due_ms = _due(when, now_ms)
        known = self._jobs.get(job_id)
        owner = self._owner(lock, job_id, now_ms)
        if owner:
            of_owner = self._jobs[owner]
            return "kept", of_owner.state, _due_of(of_owner), owner
        if known is None:
            self._add(job_id, raw, due_ms, now_ms)
            self._take_lock(lock, job_id, now_ms)
            return "created", "scheduled", str(due_ms), job_id
        if known.state == "failed" and word == "postponed":
            return "kept", "failed", "", job_id
        if word == "replaced":
            known.raw, known.failure = raw, b""
            self._free_lock(job_id)
            self._take_lock(lock, job_id, now_ms)
        self._move(known, due_ms, now_ms)
        return word, "scheduled", str(due_ms), job_id

    def cancel(self, job_id: str, now_ms: int, failure: bytes) -> str:
        """Delete a waiting job, or archive it if `failure` is not empty."""
        job = self._jobs.get(job_id)
        if job is None:
            return "unknown"
        if job.state == "failed":
            return "failed"
        self._free_lock(job_id)
        if failure:
            job.state, job.failure = "failed", failure + b',"at_ms":%d}' % now_ms
            return "archived"
        job.state = "absent"
        del self._jobs[job_id]
        return "cancelled"

    def reschedule(self, job_id: str, when: str, now_ms: int) -> tuple[str, str]:
        """Give a waiting job a new due time."""
        job = self._jobs.get(job_id)
        if job is None or job.state == "failed":
            return "unknown" if job is None else "failed", ""
        self._move(job, _due(when, now_ms), now_ms)
        return "rescheduled", str(job.due_ms)

    def run_now(self, job_id: str, now_ms: int) -> tuple[str, str]:
        """Make a scheduled job ready."""
        job = self._jobs.get(job_id)
        if job is None or job.state == "failed":
            return "unknown" if job is None else "failed", ""
        if job.state == "ready":
            return "ready", ""
        job.state, job.due_ms = "ready", now_ms
        return "ready", str(now_ms)

    def retry(self, job_id: str, raw: bytes, lock: str, now_ms: int) -> tuple[str, str, str]:
        """Schedule an archived job again."""
        job = self._jobs.get(job_id)
        if job is None or job.state != "failed":
            return "unknown" if job is None else "refused", "", ""
        owner = self._owner(lock, job_id, now_ms)
        if owner:
            return "conflict", "", owner
        job.raw = raw
        self._move(job, now_ms, now_ms)
        self._take_lock(lock, job_id, now_ms)
        return "scheduled", str(now_ms), ""

    def forget(self, job_id: str) -> str:
        """Delete an archived job."""
        job = self._jobs.get(job_id)
        if job is None or job.state != "failed":
            return "unknown" if job is None else "refused"
        job.state = "absent"
        del self._jobs[job_id]
        return "forgotten"

    def _add(self, job_id: str, raw: bytes, due_ms: int, now_ms: int) -> FakeJob:
        job = FakeJob(job_id, self._name, raw, due_ms, max(due_ms - now_ms, 0), "scheduled")
        self._jobs[job_id] = job
        self._record.append(job)
        return job

    def _move(self, job: FakeJob, due_ms: int, now_ms: int) -> None:
        job.state, job.due_ms, job.delay_ms = "scheduled", due_ms, max(due_ms - now_ms, 0)

    def _owner(self, lock: str, job_id: str, now_ms: int) -> str | None:
        """Return the id of the job that blocks a unique key for another job, or None."""
        owner, until_ms = self._owners.get(lock, ("", None))
        if until_ms is not None:
            return owner if until_ms > now_ms else None
        return owner if owner and owner != job_id else None

    def _take_lock(self, lock: str, job_id: str, now_ms: int) -> None:
        if lock:
            _, _, window_ms = lock.partition(".")
            self._owners[lock] = (job_id, now_ms + int(window_ms) if window_ms else None)

    def _free_lock(self, job_id: str) -> None:
        """Free the unique key of a job. A key with a time window stays taken until the window ends."""
        for lock, (owner, until_ms) in list(self._owners.items()):
            if owner == job_id and until_ms is None:
                del self._owners[lock]


def _due(when: str, now_ms: int) -> int:
    return max(now_ms + int(when) if when.startswith("+") else int(when), now_ms)


def _due_of(job: FakeJob | None) -> str:
    return str(job.due_ms) if job is not None and job.state == "scheduled" else ""
