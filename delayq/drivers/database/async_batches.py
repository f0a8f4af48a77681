"""The batches of a connection to a database, awaited: in a thread, or in the application's own asyncio session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from delayq.core.batches import BatchInfo
from delayq.core.followups import Link, Plan
from delayq.drivers.database.batches import LISTED, DatabaseBatches

if TYPE_CHECKING:
    from delayq.drivers.database.connection import DatabaseConnection


class AsyncDatabaseBatches:
    """As `DatabaseBatches`."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self._connection = connection
        self._batches = DatabaseBatches(connection)

    async def open(self, plan: Plan) -> BatchInfo:
        """See `DatabaseBatches.open`."""
        return await self._connection.awrite(await asyncio.to_thread(self._batches.opening, plan))

    async def get(self, batch: str) -> BatchInfo:
        """See `DatabaseBatches.get`."""
        return await asyncio.to_thread(self._batches.get, batch)

    async def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """See `DatabaseBatches.add`."""
        return await asyncio.to_thread(self._batches.add, batch, members)

    async def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """See `DatabaseBatches.cancel`."""
        return await asyncio.to_thread(partial(self._batches.cancel, batch, reason=reason))

    async def retry(self, batch: str, *, reason: str | None = None) -> int:
        """See `DatabaseBatches.retry`."""
        return await asyncio.to_thread(partial(self._batches.retry, batch, reason=reason))

    async def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """See `DatabaseBatches.pending`."""
        return await asyncio.to_thread(self._batches.pending, batch, limit)

    async def failed(self, batch: str) -> list[tuple[str, str]]:
        """See `DatabaseBatches.failed`."""
        return await asyncio.to_thread(self._batches.failed, batch)

    async def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """See `DatabaseBatches.list`."""
        return await asyncio.to_thread(self._batches.list, limit)
