"""`client.locks`: what people do about the locks of unique keys, in both shells; the verbs: `lock_views`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.core.lock_views import LockView
from delayq.redis.lock_views import LockViews

if TYPE_CHECKING:
    from delayq.redis.aio import AsyncClient
    from delayq.redis.client import Client


class LockDesk:
    """The locks of unique keys."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._views = LockViews(client.verbs)

    def all(self, queue: str | None = None, *, limit: int = 100) -> list[LockView]:
        """At most `limit` of them, of one queue or of all, each with its owner."""
        return self._client.run(self._views.every(queue, limit))

    def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """One, by what it is called in the list. Raises `LockNotFound`."""
        return self._client.run(self._views.one(lock, queue))

    def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """Free it by hand; it goes to the audit log, and the owner goes on. Answers with the lock as it was.

        Raises `LockNotFound` when nobody holds it, `InvalidInput` without a reason.
        """
        return self._client.run(self._views.free(lock, queue, reason))


class AsyncLockDesk:
    """As `LockDesk`, awaited."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._views = LockViews(client.verbs)

    async def all(self, queue: str | None = None, *, limit: int = 100) -> list[LockView]:
        """As `LockDesk.all`."""
        return await self._client.run(self._views.every(queue, limit))

    async def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """As `LockDesk.get`."""
        return await self._client.run(self._views.one(lock, queue))

    async def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """As `LockDesk.free`."""
        return await self._client.run(self._views.free(lock, queue, reason))
