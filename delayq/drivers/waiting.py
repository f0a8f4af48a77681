"""What waits for the end of a database transaction: jobs, and calls.

A hook keeps them while the transaction is open. Then it hands all that were committed to `send_committed` (or awaits
`asend_committed`), together and in their order, and calls `drop` on each that was rolled back.

The payload is made and checked when the job is dispatched; delays are counted from when it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from delayq.core.errors import CommittedUnsent, Conflict, DelayqError
from delayq.core.events import JobDispatched, JobRolledBack, JobUnsent
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import Fate, JobRef, WaitingRef
from delayq.drivers.connection import Connection
from delayq.drivers.local import LocalConnection

log = logging.getLogger("delayq.jobs")

_REFUSED = (Answer.CONFLICT, Answer.RUNNING)


class WaitingJob:
    """A job that is sent after the commit. `ref` is its answer, which tells later what became of it.

    `tell` tells listeners of an event.
    """

    def __init__(
        self,
        spec: JobSpec,
        on_conflict: OnConflict,
        connection: Connection,
        ref: WaitingRef,
        tell: Callable[[Any], None],
    ) -> None:
        self.spec = spec
        self.on_conflict = on_conflict
        self.connection = connection
        self.ref = ref
        self._tell = tell

    def arrived(self, ref: JobRef) -> DelayqError | None:
        """The backend answered; the error it stands for, if any."""
        self.ref.later.ref = ref
        name, queue = ref.name or self.ref.name, ref.queue
        self._tell(JobDispatched(ref.id, name, queue, self.connection.name, ref.outcome, ref.due_ms))
        if ref.outcome not in _REFUSED:
            return None
        return Conflict(f"The job {name!r} ({self.ref.id}) was refused in queue {queue!r}: {ref.outcome}.")

    def failed(self, error: Exception) -> None:
        """The backend did not take it."""
        self._became(Fate.UNSENT)
        self._tell(JobUnsent(self.ref.id, self.ref.name, self.ref.queue, error))

    def drop(self) -> None:
        """The transaction was rolled back."""
        self._became(Fate.ROLLED_BACK)
        self._tell(JobRolledBack(self.ref.id, self.ref.name, self.ref.queue))

    def _became(self, fate: Fate) -> None:
        known = self.ref
        known.later.ref = JobRef(known.id, known.queue, State.ABSENT, None, fate, known.name)


class WaitingCall:
    """A call that is made after the commit, when the jobs have been sent. It sees to its own errors."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def drop(self) -> None:
        """The transaction was rolled back; nobody is told of what did not happen."""


Waiting: TypeAlias = WaitingJob | WaitingCall


def send_committed(waiting: Sequence[Waiting]) -> None:
    """Send what was committed, one call for each queue. Raises `CommittedUnsent` when jobs could not be sent.

    One group of jobs that cannot be sent keeps no other from being sent.
    """
    unsent = _Unsent()
    for connection, on_conflict, jobs in _groups(waiting):
        try:
            refs = connection.schedule_many([job.spec for job in jobs], on_conflict)
        except Exception as error:  # noqa: BLE001  (kept, and raised below with all others)
            unsent.add(jobs, error)
        else:
            unsent.read(jobs, refs)
    _call(waiting)
    unsent.tell()


async def asend_committed(waiting: Sequence[Waiting]) -> None:
    """As `send_committed`, awaited."""
    unsent = _Unsent()
    for connection, on_conflict, jobs in _groups(waiting):
        try:
            refs = await connection.aschedule_many([job.spec for job in jobs], on_conflict)
        except Exception as error:  # noqa: BLE001  (kept, and raised below with all others)
            unsent.add(jobs, error)
        else:
            unsent.read(jobs, refs)
    _call(waiting)
    unsent.tell()


def _groups(waiting: Sequence[Waiting]) -> Iterator[tuple[Connection, OnConflict, list[WaitingJob]]]:
    """The jobs by connection and what a taken id means; those that run here, one by one: each may fail."""
    jobs = [one for one in waiting if isinstance(one, WaitingJob)]
    places: dict[tuple[str, OnConflict, int], list[WaitingJob]] = {}
    for number, job in enumerate(jobs):
        alone = number if isinstance(job.connection, LocalConnection) else -1
        places.setdefault((job.connection.name, job.on_conflict, alone), []).append(job)
    for some in places.values():
        yield some[0].connection, some[0].on_conflict, some


def _call(waiting: Sequence[Waiting]) -> None:
    for one in waiting:
        if isinstance(one, WaitingCall):
            one.call()


class _Unsent:
    """The jobs that could not be sent, and why."""

    def __init__(self) -> None:
        self._jobs: list[tuple[WaitingJob, Exception]] = []

    def add(self, jobs: Sequence[WaitingJob], error: Exception) -> None:
        """None of these was taken."""
        for job in jobs:
            job.failed(error)
            self._jobs.append((job, error))

    def read(self, jobs: Sequence[WaitingJob], refs: Sequence[JobRef]) -> None:
        """Some of these may have been refused."""
        for job, ref in zip(jobs, refs, strict=True):
            if error := job.arrived(ref):
                self._jobs.append((job, error))

    def tell(self) -> None:
        """Log each kind of error once, and raise. The transaction is committed, so nobody may try it again."""
        if not self._jobs:
            return
        for text, some in groupby(self._jobs, key=lambda pair: str(pair[1])):
            names = ", ".join(f"{job.ref.name} {job.ref.id}" for job, _ in some)
            log.error("committed, and not sent: %s: %s", names, text)
        raise CommittedUnsent(tuple(job.ref for job, _ in self._jobs), self._jobs[0][1]) from self._jobs[0][1]
