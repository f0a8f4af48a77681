"""Batches on Redis: the verbs of `batch_verbs`, blocking and awaited. Holds no rules."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from delayq.core.batches import BatchInfo
from delayq.core.follow import Link, Plan
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

    def cancel(self, batch: str) -> BatchInfo:
        """Let nothing of it start any more: what waits is cancelled, what runs goes on."""
        return self._run(self._verbs.cancel(batch))

    def retry(self, batch: str) -> int:
        """Retry every member that failed; how many."""
        return self._run(self._verbs.retry(batch))

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

    async def cancel(self, batch: str) -> BatchInfo:
        """See `Batches.cancel`."""
        return await self._run(self._verbs.cancel(batch))

    async def retry(self, batch: str) -> int:
        """See `Batches.retry`."""
        return await self._run(self._verbs.retry(batch))

    async def failed(self, batch: str) -> list[tuple[str, str]]:
        """See `Batches.failed`."""
        return await self._run(self._verbs.failed(batch))

    async def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """See `Batches.list`."""
        return await self._run(self._verbs.list(limit))
