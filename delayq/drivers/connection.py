"""What producers need of a backend: one named connection that takes jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from delayq.core.batches import BatchInfo
from delayq.core.followups import Link, Plan
from delayq.core.lock_views import LockView
from delayq.core.spec import Delay, JobSpec
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.failed_store import FailedJob


class BatchStore(Protocol):
    """Keeps batches. All but `open` and `list` raise `BatchNotFound` for one that is not there."""

    def open(self, plan: Plan) -> BatchInfo:
        """Begin a batch and send its members; done again with the same plan, it is the same batch."""

    def get(self, batch: str) -> BatchInfo:
        """A batch as it stands."""

    def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """More members for a batch that goes on. Raises `Conflict` for one that has finished or was cancelled."""

    def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Let nothing of it start any more. A `reason` is written down; one that says nothing is `InvalidInput`."""

    def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Retry every member that failed; how many. `reason` as with `cancel`. What was skipped stays skipped."""

    def pending(self, batch: str, limit: int = 50) -> Sequence[tuple[str, str]]:
        """At most `limit` members that have not ended, each with its queue ('' = a batch)."""

    def failed(self, batch: str) -> Sequence[tuple[str, str]]:
        """The members that failed, each with its queue ('' = a batch)."""

    def list(self, limit: int = 50) -> Sequence[BatchInfo]:
        """The newest batches, newest first."""


class LockStore(Protocol):
    """Keeps the locks of unique keys. `get` and `free` raise `LockNotFound` for one that nobody holds."""

    def all(self, queue: str | None = None, *, limit: int = 100) -> Sequence[LockView]:
        """At most `limit` of them, of one queue or of all, each with its owner."""

    def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """One, by what it is called in the list."""

    def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """Free it by hand; the owner goes on. Answers with the lock as it was."""


class AsyncBatchStore(Protocol):
    """As `BatchStore`, awaited."""

    async def open(self, plan: Plan) -> BatchInfo:
        """See `BatchStore.open`."""

    async def get(self, batch: str) -> BatchInfo:
        """See `BatchStore.get`."""

    async def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """See `BatchStore.add`."""

    async def cancel(self, batch: str) -> BatchInfo:
        """See `BatchStore.cancel`."""

    async def retry(self, batch: str) -> int:
        """See `BatchStore.retry`."""


@runtime_checkable
class KeepsBatches(Protocol):
    """A connection that also keeps batches."""

    @property
    def batches(self) -> BatchStore:
        """They."""

    @property
    def abatches(self) -> AsyncBatchStore:
        """They, awaited."""


@runtime_checkable
class KeepsLocks(Protocol):
    """A connection whose unique keys people can look at."""

    def locks(self) -> LockStore:
        """They."""


@runtime_checkable
class Refuses(Protocol):
    """A connection that cannot do all that a job may ask for, and says so of one whose turn comes later."""

    def refuse(self, spec: JobSpec) -> None:
        """Raises `InvalidInput` for a link of a chain, a member of a batch, a callback that cannot be carried."""


@runtime_checkable
class TakesUp(Protocol):
    """A connection that keeps failed jobs beside the others, and takes one up again in one step."""

    def retry_failed(self, uuid: str, job: FailedJob) -> JobRef:
        """`uuid`: what the failed know it by. Raises `Conflict` when its id or its unique key is taken."""


@runtime_checkable
class Joins(Protocol):
    """A connection that writes jobs in the application's own transaction, where that is one of its database."""

    def takes(self, session: object) -> bool:
        """Whether it can write in the transaction of that session."""


class Connection(Protocol):
    """Takes jobs, blocking or awaited; the names with `a` are awaited. All raise `InvalidInput` and `BackendError`.

    Every answer says what became of the job: a connection that does not store it says so in `JobRef.outcome`.
    """

    name: str

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Take one job; a refusal is raised."""

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """Take many; an answer for each, in order. Nothing is sent if one of them is invalid."""

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Take an envelope as it is."""

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""

    def close(self) -> None:
        """Close what `schedule` opened; the connection may be used again."""

    async def aclose(self) -> None:
        """Close what `aschedule` opened in this event loop."""
