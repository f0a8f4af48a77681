"""Writes rows in the transaction of an SQLAlchemy session or connection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Connection, insert, select
from sqlalchemy.orm import Session, scoped_session

from delayq.core.errors import ConfigError
from delayq.drivers.outbox.asyncio_kinds import asyncio_kinds
from delayq.drivers.outbox.row import OutboxRow
from delayq.drivers.outbox.table import now_ms, outbox_table

_table = lru_cache(maxsize=16)(lambda name: outbox_table(name=name))
"""One table object for each name: SQLAlchemy remembers its statements by it."""
_PLAIN = (Session, scoped_session, Connection)


class SqlAlchemyWriter:
    """One session or connection. A plain one may be used from a coroutine; it blocks as always."""

    def __init__(self, session: Any, table: str) -> None:
        if not isinstance(session, (*_PLAIN, *asyncio_kinds())):
            raise ConfigError(
                f"{session!r} is nothing an outbox can write in.",
                hint="Give an SQLAlchemy session or connection, or the alias of a Django database.",
            )
        self._session: Any = session
        self._table = _table(table)

    def now_ms(self) -> int:
        """The database's clock."""
        return cast(int, self._plain().execute(select(now_ms())).scalar_one())

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """In the session's transaction, which begins here if it has not."""
        self._plain().execute(insert(self._table), list(rows))

    async def anow_ms(self) -> int:
        """As `now_ms`."""
        if isinstance(self._session, _PLAIN):
            return self.now_ms()
        return cast(int, (await self._session.execute(select(now_ms()))).scalar_one())

    async def awrite(self, rows: Sequence[OutboxRow]) -> None:
        """As `write`."""
        if isinstance(self._session, _PLAIN):
            self.write(rows)
        else:
            await self._session.execute(insert(self._table), list(rows))

    def _plain(self) -> Any:
        if not isinstance(self._session, _PLAIN):
            raise ConfigError(
                "An asyncio session cannot be written in without awaiting it.", hint="Use adispatch, and await it."
            )
        return self._session
