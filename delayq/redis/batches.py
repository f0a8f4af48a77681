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
    """The batches a client sees. All but `list` raise `BatchNotFound` for one that is not there."""

    def __init__(self, run: Run, verbs: Verbs) -> None:
        self._run = run
        self._verbs = BatchVerbs(verbs)

    def open(self, plan: Plan) -> BatchInfo:
        """Begin a batch; done again with the same plan, it is the same batch."""
        return self._run(self._verbs.open(plan))

    def get(self, batch: str) -> BatchInfo:
        """A batch as it stands."""
        return self._run(self._verbs.get(batch))

    def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """More members for a batch that goes on. Raises `Conflict` for one that has finished or was cancelled."""
        return self._run(self._verbs.add(batch, members))

    def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Let nothing of it start any more: what waits is cancelled, what runs goes on.

        A `reason` goes to the audit log. Raises `InvalidInput` for one that says nothing.
        """
        return self._run(self._verbs.cancel(batch, reason))

    def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Retry every member that failed; how many. `reason` as with `cancel`. What was skipped stays skipped."""
        return self._run(self._verbs.retry(batch, reason))

    def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """At most `limit` members that have not ended, each with its queue ('' = a batch)."""
        return self._run(self._verbs.pending(batch, limit))

    def failed(self, batch: str) -> list[tuple[str, str]]:
        """The members that failed, each with its queue ('' = a batch)."""
        return self._run(self._verbs.failed(batch))

    def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """The newest batches, newest first."""
        return self._run(self._verbs.list(limit))


class AsyncBatches:
    """As `Batches`, awaited."""

    def __init__(self, run: AsyncRun, verbs: Verbs) -> None:
        self._run = run
        self._verbs = BatchVerbs(verbs)

    async def open(self, plan: Plan) -> BatchInfo:
        """See `Batches.open`."""
        return await self._run(self._verbs.open(plan))

    async def get(self, batch: str) -> BatchInfo:
        """See `Batches.get`."""
        return await self._run(self._verbs.get(batch))

    async def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """See `Batches.add`."""
        return await self._run(self._verbs.add(batch, members))

    async def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """See `Batches.cancel`."""
        return await self._run(self._verbs.cancel(batch, reason))

    async def retry(self, batch: str, *, reason: str | None = None) -> int:
        """See `Batches.retry`."""
        return await self._run(self._verbs.retry(batch, reason))

    async def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """See `Batches.pending`."""
        return await self._run(self._verbs.pending(batch, limit))

    async def failed(self, batch: str) -> list[tuple[str, str]]:
        """See `Batches.failed`."""
        return await self._run(self._verbs.failed(batch))

    async def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """See `Batches.list`."""
        return await self._run(self._verbs.list(limit))
