"""`client.limits` and `client.audit_log`: what people do about limits, in both shells; the verbs: `limit_views`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.core.audit import AuditEntry, Deed
from delayq.core.limit_views import Freed, LimitView
from delayq.redis.audit import Audit
from delayq.redis.limit_views import LimitViews

if TYPE_CHECKING:
    from delayq.redis.aio import AsyncClient
    from delayq.redis.client import Client


class LimitDesk:
    """The limits that jobs of this prefix have asked for. All methods raise `BackendError`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._views = LimitViews(client.verbs)

    def all(self) -> list[LimitView]:
        """Return every limit, by name: its places with their holders, what is left of its rates, its circuit."""
        return self._client.run(self._views.every())

    def get(self, name: str) -> LimitView:
        """Return the limit `name`; an empty one when nothing is kept of it. Raises `InvalidName`."""
        return self._client.run(self._views.one(name))

    def free(self, name: str, key: str = "", *, holder: str | None = None, reason: str) -> Freed:
        """Free what `key` of the limit `name` holds, or only the place of the job `holder` (an id).

        A job that runs goes on. `reason` goes to the audit log. Returns what was freed. Raises `LimitNotFound` when
        there is nothing to free, `InvalidInput` for an empty reason.
        """
        return self._client.run(self._views.free(name, key, holder, reason))


class AsyncLimitDesk:
    """The limits that jobs of this prefix have asked for, awaited. All methods raise `BackendError`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._views = LimitViews(client.verbs)

    async def all(self) -> list[LimitView]:
        """Return every limit, by name: its places with their holders, what is left of its rates, its circuit."""
        return await self._client.run(self._views.every())

    async def get(self, name: str) -> LimitView:
        """Return the limit `name`; an empty one when nothing is kept of it. Raises `InvalidName`."""
        return await self._client.run(self._views.one(name))

    async def free(self, name: str, key: str = "", *, holder: str | None = None, reason: str) -> Freed:
        """Free what `key` of the limit `name` holds, or only the place of the job `holder` (an id).

        A job that runs goes on. `reason` goes to the audit log. Returns what was freed. Raises `LimitNotFound` when
        there is nothing to free, `InvalidInput` for an empty reason.
        """
        return await self._client.run(self._views.free(name, key, holder, reason))


class AuditDesk:
    """The audit log: what people did by hand. All methods raise `BackendError`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._audit = Audit(client.verbs)

    def last(self, limit: int = 100) -> list[AuditEntry]:
        """Return the last `limit` entries, the newest first; times are epoch ms."""
        return self._client.run(self._audit.read(max(1, limit)))

    def record(self, deed: Deed) -> str:
        """Write down what is about to be done; returns the entry's id. Raises `InvalidInput` for an empty reason."""
        return self._client.run(self._audit.record(deed))

    def end(self, entry: str, refusal: str = "") -> None:
        """Write down how the entry `entry` (an id) ended: done when `refusal` is '', else refused for that reason."""
        self._client.run(self._audit.end(entry, refusal))


class AsyncAuditDesk:
    """The audit log, awaited: what people did by hand. All methods raise `BackendError`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._audit = Audit(client.verbs)

    async def last(self, limit: int = 100) -> list[AuditEntry]:
        """Return the last `limit` entries, the newest first; times are epoch ms."""
        return await self._client.run(self._audit.read(max(1, limit)))

    async def record(self, deed: Deed) -> str:
        """Write down what is about to be done; returns the entry's id. Raises `InvalidInput` for an empty reason."""
        return await self._client.run(self._audit.record(deed))

    async def end(self, entry: str, refusal: str = "") -> None:
        """Write down how the entry `entry` (an id) ended: done when `refusal` is '', else refused for that reason."""
        await self._client.run(self._audit.end(entry, refusal))
