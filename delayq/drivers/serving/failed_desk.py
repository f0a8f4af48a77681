"""What people ask and do about the failed jobs of a connection whose backend keeps none: list, retry, forget, prune."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Unpack

from msgspec import structs

from delayq.core import envelope as envelopes
from delayq.core.durations import duration_ms
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, DelayqError, FoundElsewhere, JobNotFound
from delayq.core.failed import FailedOptions, choose
from delayq.core.failure_groups import FailureGroups, Grouping
from delayq.core.names import ids_of
from delayq.core.options import Options
from delayq.core.states import Answer, State
from delayq.core.views import JobInfo, Retried
from delayq.drivers.connection import Connection, TakesUp
from delayq.drivers.failed_store import FailedJob, FailedQuery, FailedStore, TellsQueues

PAGE = 200
CLOCKS_APART_MS = 1_000
"""A backend's clock may be ahead of ours, if only by rounding. What it says failed this much later is meant too."""


class FailedDesk:
    """Of one connection. `load` makes an envelope of what the store has, as the connection's backend would.

    `buried` tells how much of each queue the backend has laid aside, unread.
    """

    def __init__(
        self,
        connection: Connection,
        options: Options,
        store: FailedStore,
        load: Callable[[bytes], bytes],
        buried: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.options = options
        self.buried = buried
        self._connection = connection
        self._store = store
        self._load = load

    def queues(self) -> list[str]:
        """The queues that failed jobs came from."""
        if isinstance(self._store, TellsQueues):
            return self._store.queues(self._connection.name)
        return sorted({job.queue for job in self._iter(FailedQuery(connection=self._connection.name))})

    def iter_failed(self, queue: str | None = None, **which: Unpack[FailedOptions]) -> Iterator[JobInfo]:
        """The failed jobs of one queue that are meant, the oldest first."""
        now_ms = time.time_ns() // 1_000_000
        chosen = choose(which, now_ms, now_ms + CLOCKS_APART_MS)
        query = FailedQuery(
            name=chosen.name,
            connection=self._connection.name,
            queue=queue or self.options.queue,
            since_ms=chosen.since_ms,
            until_ms=chosen.until_ms,
        )
        return filter(chosen.has, map(self._info, self._iter(query)))

    def failed_groups(self, queue: str | None = None, *, looks: int, **which: Unpack[FailedOptions]) -> FailureGroups:
        """Group the failed jobs of one queue, or of all, by job name and error; `looks` jobs of each at most."""
        grouping, looked, more = Grouping(), 0, False
        for name in self.queues() if queue is None else [queue]:
            found = self.iter_failed(name, **which)
            for info in islice(found, max(0, looks - looked)):
                looked += 1
                grouping.add([info])
            more = more or next(found, None) is not None
        return grouping.groups("more" if more else "", looked)

    def get(self, job_id: str, *, queue: str | None = None) -> JobInfo | None:
        """One of them."""
        job = self._find(job_id, queue)
        return self._info(job) if job is not None else None

    def count(self, queue: str | None = None) -> int:
        """How many there are of one queue."""
        return self._store.count(FailedQuery(connection=self._connection.name, queue=queue or self.options.queue))

    def retry_one(self, job_id: str, *, queue: str | None = None) -> Retried:
        """Push it again with all its tries, then forget the failure. Done again after a crash, it is the same job.

        Without `queue` the default queue is meant; a job of another one is a `FoundElsewhere` in the answer.
        """
        job = self._find(job_id, queue or self.options.queue)
        if job is None:
            return Retried(job_id, None, self._missing(job_id, queue))
        try:
            if isinstance(self._connection, TakesUp):
                return Retried(job_id, self._connection.retry_failed(job_id, job), None)
            raw = self._load(job.payload)
            raw = envelopes.afresh(raw, envelopes.decode(raw), time.time_ns() // 1_000_000)
            ref = self._connection.push_raw(raw, queue=job.queue)
        except DelayqError as error:
            return Retried(job_id, None, error)
        self._store.forget([job_id])
        return Retried(job_id, ref, None)

    def forget(self, job_ids: str | Iterable[str], *, queue: str | None = None) -> list[Answer]:
        """Drop them: `forgotten`, or `unknown`. A text is one id.

        Without `queue` the default queue is meant. Raises `FoundElsewhere` for an id of another one, when the others
        are done; its `done` has the answers for all ids.
        """
        job_ids = ids_of(job_ids)
        known = [job_id for job_id in job_ids if self._find(job_id, queue or self.options.queue) is not None]
        self._store.forget(known)
        answers = [Answer.FORGOTTEN if job_id in known else Answer.UNKNOWN for job_id in job_ids]
        if queue is None:
            for job_id in job_ids:
                if job_id not in known and isinstance(error := self._missing(job_id, None), FoundElsewhere):
                    error.done = tuple(answers)
                    raise error
        return answers

    def prune_failed(self, queue: str | None = None, *, older: str) -> int:
        """Drop the jobs of a queue that failed longer ago; how many."""
        until_ms = time.time_ns() // 1_000_000 - duration_ms(older)
        query = FailedQuery(connection=self._connection.name, queue=queue or self.options.queue, until_ms=until_ms)
        dropped = 0
        while jobs := self._store.page(query, count=PAGE).jobs:
            dropped += self._store.forget([job.id for job in jobs])
        self.prune_leftovers()
        return dropped

    def prune_leftovers(self) -> None:
        """Remove what the store kept of failed jobs that other programs removed, such as `artisan queue:flush`."""
        self._store.prune(0)

    def close(self) -> None:
        """Close the store and the connection."""
        self._store.close()
        self._connection.close()

    def _find(self, job_id: str, queue: str | None) -> FailedJob | None:
        job = self._store.get(job_id)
        ours = job is not None and job.connection == self._connection.name and queue in (None, job.queue)
        return job if ours else None

    def _missing(self, job_id: str, queue: str | None) -> JobNotFound:
        """Say where the job is, if another queue of this connection has it."""
        asked = queue or self.options.queue
        text = f"No job {job_id!r} is among the failed of queue {asked!r} of {self._connection.name!r}"
        there = self._find(job_id, None)
        if there is None or there.queue == asked:
            return JobNotFound(f"{text}.", hint="Name its queue: --queue Q.")
        return FoundElsewhere(
            f"{text}, but queue {there.queue!r} has one; nothing was done to it.",
            hint=f"It is in queue {there.queue!r}: add --queue {there.queue}.",
            job_id=job_id,
            queues=(there.queue,),
        )

    def _iter(self, query: FailedQuery) -> Iterator[FailedJob]:
        cursor = ""
        while True:
            page = self._store.page(query, cursor=cursor, count=PAGE)
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def _info(self, job: FailedJob) -> JobInfo:
        raw, envelope = self._read(job.payload)
        if envelope is not None and (made := job.failure.attempt or 0) > envelope.attempts:
            envelope = structs.replace(envelope, attempts=made)  # a payload of Laravel's form carries no count
        return JobInfo(job.id, job.queue, State.FAILED, raw, envelope, failed_ms=job.failed_ms, failure=job.failure)

    def _read(self, payload: bytes) -> tuple[bytes, Envelope | None]:
        try:
            raw = self._load(payload)
            return raw, envelopes.decode(raw)
        except BadEnvelope:
            return payload, None
