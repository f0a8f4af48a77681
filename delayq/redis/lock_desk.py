"""`client.locks`: what people do about the locks of unique keys, in both shells; the verbs: `lock_views`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.core.lock_views import LockView
from delayq.redis.lock_views import LockViews

if TYPE_CHECKING:
    from delayq.redis.aio import AsyncClient
    from delayq.redis.client import Client


class LockDesk:
    """The locks of unique keys. All methods raise `BackendError`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._views = LockViews(client.verbs)

    def all(self, queue: str | None = None, *, limit: int = 100) -> list[LockView]:
        """Return at most `limit` locks of `queue`, or of all queues, each with the id of the job that owns it."""
        return self._client.run(self._views.every(queue, limit))

    def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """Return one lock, by the name that `all` shows. `queue` narrows the search. Raises `LockNotFound`."""
        return self._client.run(self._views.one(lock, queue))

    def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """Free a lock by hand; the job that owned it goes on. `reason` goes to the audit log.

        Returns the lock as it was. Raises `LockNotFound` when no job owns it, `InvalidInput` for an empty reason.
        """
        return self._client.run(self._views.free(lock, queue, reason))


class AsyncLockDesk:
    """The locks of unique keys, awaited. All methods raise `BackendError`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._views = LockViews(client.verbs)

    async def all(self, queue: str | None = None, *, limit: int = 100) -> list[LockView]:
        """Return at most `limit` locks of `queue`, or of all queues, each with the id of the job that owns it."""
        return await self._client.run(self._views.every(queue, limit))

    async def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """Return one lock, by the name that `all` shows. `queue` narrows the search. Raises `LockNotFound`."""
        return await self._client.run(self._views.one(lock, queue))

    async def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """Free a lock by hand; the job that owned it goes on. `reason` goes to the audit log.

        Returns the lock as it was. Raises `LockNotFound` when no job owns it, `InvalidInput` for an empty reason.
        """
        return await self._client.run(self._views.free(lock, queue, reason))
