"""A connection that writes jobs down instead of sending them. They are checked as always, and answered as always."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope
from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.connection import Connection
from delayq.jobs.running import wall_ms
from delayq.redis.calls.refusals import refusal
from delayq.testing.book import Book


class FakeConnection:
    """A `Connection`. What the book does not want goes to the real one, which is made only then."""

    def __init__(self, name: str, options: Options, book: Book, real: Callable[[], Connection]) -> None:
        self.name = name
        self._options = replace(options, travels=False)
        self._book = book
        self._real = real

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Write one down; a refusal is raised."""
        if not self._book.wants(spec.name):
            return self._real().schedule(spec, on_conflict)
        return self._take_one(self._prepare(spec), on_conflict)

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """Write them down once all are checked; those for the real connection are sent first."""
        jobs, others = self._divided(specs)
        sent = self._real().schedule_many(others, on_conflict) if others else []
        return self._together(jobs, sent, on_conflict)

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Write an envelope down."""
        if not self._book.wants(_name_of(envelope)):
            return self._real().push_raw(envelope, queue=queue, delay=delay)
        return self._take_one(prepare_raw(envelope, self._options, queue, delay), OnConflict.KEEP)

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        if not self._book.wants(spec.name):
            return await self._real().aschedule(spec, on_conflict)
        return self._take_one(self._prepare(spec), on_conflict)

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        jobs, others = self._divided(specs)
        sent = await self._real().aschedule_many(others, on_conflict) if others else []
        return self._together(jobs, sent, on_conflict)

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        if not self._book.wants(_name_of(envelope)):
            return await self._real().apush_raw(envelope, queue=queue, delay=delay)
        return self._take_one(prepare_raw(envelope, self._options, queue, delay), OnConflict.KEEP)

    def close(self) -> None:
        """Nothing is open here; the real connection is its manager's."""

    async def aclose(self) -> None:
        """As `close`."""

    def _prepare(self, spec: JobSpec) -> Prepared:
        return prepare(spec, self._options, wall_ms())

    def _take_one(self, job: Prepared, on_conflict: OnConflict) -> JobRef:
        ref = self._book.take(self.name, job, on_conflict)
        if isinstance(ref.outcome, Answer) and (error := refusal(ref.outcome, job.id, job.queue, owner=ref.id)):
            raise error
        return ref

    def _divided(self, specs: Sequence[JobSpec]) -> tuple[list[Prepared | None], list[JobSpec]]:
        """For each spec the job to write down, or None where it is a real one; and the real ones."""
        jobs = [self._prepare(spec) if self._book.wants(spec.name) else None for spec in specs]
        return jobs, [spec for spec, job in zip(specs, jobs, strict=True) if job is None]

    def _together(self, jobs: Sequence[Prepared | None], sent: list[JobRef], on_conflict: OnConflict) -> list[JobRef]:
        """The answers in the order of the jobs."""
        answers = iter(sent)
        return [next(answers) if job is None else self._book.take(self.name, job, on_conflict) for job in jobs]


def _name_of(envelope: bytes) -> str:
    """The name in an envelope; '' for bytes that are none, which are refused where they are looked at."""
    try:
        return envelopes.decode(envelope).name
    except BadEnvelope:
        return ""
