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
    """The limits that jobs have asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._views = LimitViews(client.verbs)

    def all(self) -> list[LimitView]:
        """All of them: who holds places, what is left of rates, how circuits stand."""
        return self._client.run(self._views.every())

    def get(self, name: str) -> LimitView:
        """One of them; empty when nothing is kept for it. Raises `InvalidName`."""
        return self._client.run(self._views.one(name))

    def free(self, name: str, key: str = "", *, holder: str | None = None, reason: str) -> Freed:
        """Free what a key of a limit keeps, or only the place of the job `holder` (an id). It goes to the audit log.

        A job that runs goes on. Raises `LimitNotFound` when there is nothing, `InvalidInput` without a reason.
        """
        return self._client.run(self._views.free(name, key, holder, reason))


class AsyncLimitDesk:
    """As `LimitDesk`, awaited."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._views = LimitViews(client.verbs)

    async def all(self) -> list[LimitView]:
        """As `LimitDesk.all`."""
        return await self._client.run(self._views.every())

    async def get(self, name: str) -> LimitView:
        """As `LimitDesk.get`."""
        return await self._client.run(self._views.one(name))

    async def free(self, name: str, key: str = "", *, holder: str | None = None, reason: str) -> Freed:
        """As `LimitDesk.free`."""
        return await self._client.run(self._views.free(name, key, holder, reason))


class AuditDesk:
    """What was done by hand."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._audit = Audit(client.verbs)

    def last(self, limit: int = 100) -> list[AuditEntry]:
        """The last deeds, the newest first."""
        return self._client.run(self._audit.read(max(1, limit)))

    def record(self, deed: Deed) -> str:
        """Write a deed down, before it is done; its id. Raises `InvalidInput` for a reason that says nothing."""
        return self._client.run(self._audit.record(deed))

    def end(self, entry: str, refusal: str = "") -> None:
        """Write down how the deed of that entry ended: done, or refused for the reason `refusal`."""
        self._client.run(self._audit.end(entry, refusal))


class AsyncAuditDesk:
    """As `AuditDesk`, awaited."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._audit = Audit(client.verbs)

    async def last(self, limit: int = 100) -> list[AuditEntry]:
        """As `AuditDesk.last`."""
        return await self._client.run(self._audit.read(max(1, limit)))

    async def record(self, deed: Deed) -> str:
        """As `AuditDesk.record`."""
        return await self._client.run(self._audit.record(deed))

    async def end(self, entry: str, refusal: str = "") -> None:
        """As `AuditDesk.end`."""
        await self._client.run(self._audit.end(entry, refusal))
