"""Batches on Redis: the verbs of `batch_verbs`, blocking and awaited. Holds no rules."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from delayq.core.batches import BatchInfo
from delayq.core.followups import Link, Plan
from delayq.redis.batch_verbs import BatchVerbs
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")
LISTED = 50


class Run(Protocol):
    """Runs a verb, blocking."""

    def __call__(self, flow: Flow[T]) -> T:
        """What the verb returns."""


class AsyncRun(Protocol):
    """Runs a verb, awaited."""

    def __call__(self, flow: Flow[T]) -> Awaitable[T]:
        """What the verb returns."""


class Batches:
    """The batches of one client. All methods raise `BackendError`; all but `open` and `list` raise `BatchNotFound`."""

    def __init__(self, run: Run, verbs: Verbs) -> None:
        self._run = run
        self._verbs = BatchVerbs(verbs)

    def open(self, plan: Plan) -> BatchInfo:
        """Begin a batch and send its members; the same plan again is the same batch. Returns it as it stands."""
        return self._run(self._verbs.open(plan))

    def get(self, batch: str) -> BatchInfo:
        """Return the batch with the id `batch` as it stands; times are epoch ms."""
        return self._run(self._verbs.get(batch))

    def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """Add members to a batch that goes on. Returns it as it stands.

        Raises `Conflict` for one that has finished or was cancelled.
        """
        return self._run(self._verbs.add(batch, members))

    def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Let no further member start: those that wait are cancelled, those that run go on. Returns the batch.

        `reason` goes to the audit log. Raises `InvalidInput` for an empty one.
        """
        return self._run(self._verbs.cancel(batch, reason))

    def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Retry every member that failed, but none that was skipped. Returns how many.

        `reason` goes to the audit log. Raises `InvalidInput` for an empty one.
        """
        return self._run(self._verbs.retry(batch, reason))

    def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """Return at most `limit` members that have not ended, as (id, queue); the queue of a batch is ''."""
        return self._run(self._verbs.pending(batch, limit))

    def failed(self, batch: str) -> list[tuple[str, str]]:
        """Return the members that failed, as (id, queue); the queue of a batch is ''."""
        return self._run(self._verbs.failed(batch))

    def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """Return at most `limit` batches, the newest first."""
        return self._run(self._verbs.list(limit))


class AsyncBatches:
    """The batches of one client, awaited. All methods raise `BackendError`; all but `open`, `list` `BatchNotFound`."""

    def __init__(self, run: AsyncRun, verbs: Verbs) -> None:
        self._run = run
        self._verbs = BatchVerbs(verbs)

    async def open(self, plan: Plan) -> BatchInfo:
        """Begin a batch and send its members; the same plan again is the same batch. Returns it as it stands."""
        return await self._run(self._verbs.open(plan))

    async def get(self, batch: str) -> BatchInfo:
        """Return the batch with the id `batch` as it stands; times are epoch ms."""
        return await self._run(self._verbs.get(batch))

    async def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """Add members to a batch that goes on. Returns it as it stands.

        Raises `Conflict` for one that has finished or was cancelled.
        """
        return await self._run(self._verbs.add(batch, members))

    async def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Let no further member start: those that wait are cancelled, those that run go on. Returns the batch.

        `reason` goes to the audit log. Raises `InvalidInput` for an empty one.
        """
        return await self._run(self._verbs.cancel(batch, reason))

    async def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Retry every member that failed, but none that was skipped. Returns how many.

        `reason` goes to the audit log. Raises `InvalidInput` for an empty one.
        """
        return await self._run(self._verbs.retry(batch, reason))

    async def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """Return at most `limit` members that have not ended, as (id, queue); the queue of a batch is ''."""
        return await self._run(self._verbs.pending(batch, limit))

    async def failed(self, batch: str) -> list[tuple[str, str]]:
        """Return the members that failed, as (id, queue); the queue of a batch is ''."""
        return await self._run(self._verbs.failed(batch))

    async def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """Return at most `limit` batches, the newest first."""
        return await self._run(self._verbs.list(limit))
