"""A connection that writes jobs down instead of sending them. They are checked as always, and answered as always."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from delayq.core import envelope as envelopes
from delayq.core.batches import BatchInfo
from delayq.core.errors import BadEnvelope, BatchNotFound, ConfigError
from delayq.core.followups import Link, Plan
from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.capabilities import ALSO_DATABASE
from delayq.drivers.connection import BatchStore, Connection, KeepsBatches
from delayq.jobs.running import wall_ms
from delayq.redis.calls.refusals import refusal
from delayq.redis.connect import Connector
from delayq.testing.book import Book


def refused(what: str) -> RuntimeError:
    """The error of what a fake cannot answer. None of ours: a program under test must not take it for an outage."""
    return RuntimeError(
        f"delayq's fake writes jobs down and has no queue, so it cannot answer {what}. "
        "Use the fixture delayq_travel (or travelling()) for tests that need one."
    )


def _asked_for() -> str:
    """The call that the program under test made: 'DelayQ.cancel'. The frame through which it entered delayq."""
    frame: FrameType | None = sys._getframe(1)
    entered = None
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("delayq."):
        entered, frame = frame, frame.f_back
    if entered is None or frame is None:
        return "a call to Redis"
    own = entered.f_locals.get("self")
    name = entered.f_code.co_name
    return f"{type(own).__name__}.{name}" if own is not None else name


class Gatekeeper:
    """Between clients that no manager made and their Redis: see `delayq.redis.interception`."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def owns(self, asked: Connector) -> bool:
        """No server belongs to a fake."""
        return False

    def instead(self, asked: Connector) -> None:
        """Nothing, when some jobs are really sent. Raises `RuntimeError` otherwise."""
        if not self._book.partial:
            raise refused(f"{_asked_for()} (Redis at {asked.endpoint.where})")

    def take(self, job: Prepared, on_conflict: OnConflict, options: Options) -> JobRef | None:
        """Write the job down, if the book wants it."""
        return self._book.take(options.connection, job, on_conflict) if self._book.wants(job.name) else None

    def clock_ms(self) -> int | None:
        """This machine's time; None when there are servers to ask."""
        return None if self._book.partial else wall_ms()


class FakeBatches:
    """A `BatchStore`. A batch of which the book wants no job goes to the real one."""

    def __init__(self, connection: str, book: Book, real: Callable[[], Connection]) -> None:
        self._connection = connection
        self._book = book
        self._real = real

    def open(self, plan: Plan) -> BatchInfo:
        """Write one down, with all that is in it."""
        info = self._book.take_batch(self._connection, plan)
        return self.real("a batch").open(plan) if info is None else info

    def get(self, batch: str) -> BatchInfo:
        """One as it stands. Raises `BatchNotFound`."""
        info = self._book.batch(batch)
        if info is None and not self._book.partial:
            raise BatchNotFound(f"No batch {batch!r} was dispatched to this fake.")
        return self.real("a batch").get(batch) if info is None else info

    def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """Of a real batch only."""
        return self.real(f"an addition to the batch {batch!r}").add(batch, members)

    def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Of a real batch only."""
        return self.real(f"a cancel of the batch {batch!r}").cancel(batch, reason=reason)

    def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Of a real batch only."""
        return self.real(f"a retry of the batch {batch!r}").retry(batch, reason=reason)

    def pending(self, batch: str, limit: int = 50) -> Sequence[tuple[str, str]]:
        """Of a real batch only."""
        return self.real(f"the members of the batch {batch!r}").pending(batch, limit)

    def failed(self, batch: str) -> Sequence[tuple[str, str]]:
        """Of a real batch only."""
        return self.real(f"the failed members of the batch {batch!r}").failed(batch)

    def list(self, limit: int = 50) -> Sequence[BatchInfo]:
        """The real batches."""
        return self.real("a list of batches").list(limit)

    def real(self, what: str) -> BatchStore:
        """The real store. Raises `RuntimeError` when nothing is really sent, `ConfigError` when there is none."""
        if not self._book.partial:
            raise refused(what)
        connection = self._real()
        if not isinstance(connection, KeepsBatches):
            raise ConfigError(f"The connection {self._connection!r} keeps no batches.", hint=ALSO_DATABASE)
        return connection.batches


class AsyncFakeBatches:
    """As `FakeBatches`, awaited; a real store blocks for the blink it takes."""

    def __init__(self, batches: FakeBatches) -> None:
        self._batches = batches

    async def open(self, plan: Plan) -> BatchInfo:
        """Write one down, with all that is in it."""
        return self._batches.open(plan)

    async def get(self, batch: str) -> BatchInfo:
        """One as it stands. Raises `BatchNotFound`."""
        return self._batches.get(batch)

    async def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """Of a real batch only."""
        return self._batches.add(batch, members)

    async def cancel(self, batch: str) -> BatchInfo:
        """Of a real batch only."""
        return self._batches.cancel(batch)

    async def retry(self, batch: str) -> int:
        """Of a real batch only."""
        return self._batches.retry(batch)


class FakeConnection:
    """A `Connection`. What the book does not want goes to the real one, which is made only then."""

    def __init__(self, name: str, options: Options, book: Book, real: Callable[[], Connection]) -> None:
        self.name = name
        self._options = replace(options, travels=False)
        self._book = book
        self._real = real
        self.batches = FakeBatches(name, book, real)
        self.abatches = AsyncFakeBatches(self.batches)

    @property
    def client(self) -> Any:
        """That of the real connection. Raises `RuntimeError` when nothing is really sent."""
        if not self._book.partial:
            raise refused("a question about one job")
        return getattr(self._real(), "client", None)

    @property
    def aclient(self) -> Any:
        """As `client`, for asyncio."""
        return getattr(self._real(), "aclient", None) if self._book.partial else self.client

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
