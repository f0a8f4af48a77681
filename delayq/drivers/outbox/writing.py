"""Writes rows in the transaction of a session, whatever library knows it. Each is imported only when met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from delayq.core.errors import ConfigError
from delayq.drivers.outbox.clocks import NOW_MS
from delayq.drivers.outbox.row import COLUMNS, OutboxRow


class Writer(Protocol):
    """One session, blocking or awaited."""

    def now_ms(self) -> int:
        """The database's clock."""

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """In the session's transaction."""

    async def anow_ms(self) -> int:
        """As `now_ms`."""

    async def awrite(self, rows: Sequence[OutboxRow]) -> None:
        """As `write`."""


def writer_of(session: Any, table: str) -> Writer:
    """Who writes in that session. Raises `ConfigError` without one, and for what nobody can write in."""
    if session is None:
        raise ConfigError(
            "The job goes to an outbox, and no database session is known to write it in.",
            hint="Name it: dispatch(within=session), or a block: with within(session).",
        )
    if isinstance(session, str):
        return DjangoWriter(session, table)
    from delayq.drivers.outbox.sqlalchemy_writer import SqlAlchemyWriter

    return SqlAlchemyWriter(session, table)


class DjangoWriter:
    """Writes through the connection of a Django alias; outside of an atomic block each write commits by itself."""

    def __init__(self, alias: str, table: str) -> None:
        from django.db import connections

        if alias not in connections:
            known = ", ".join(connections)
            raise ConfigError(f"{alias!r} is no alias of a Django database; known are {known}.")
        self._connection: Any = connections[alias]
        if self._connection.vendor not in NOW_MS:
            raise ConfigError(f"There is no outbox on {self._connection.vendor}, which {alias!r} is.")
        self._table = table

    def now_ms(self) -> int:
        """The database's clock."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT {NOW_MS[self._connection.vendor]}")
            return int(cursor.fetchone()[0])

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """In the transaction under way."""
        name = self._connection.ops.quote_name
        table = ".".join(name(part) for part in self._table.split("."))
        columns, marks = ", ".join(map(name, COLUMNS)), ", ".join(["%s"] * len(COLUMNS))
        with self._connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} ({columns}) VALUES ({marks})", [tuple(row.values()) for row in rows]
            )

    async def anow_ms(self) -> int:
        """Django has no transactions for asyncio. Raises `ConfigError`."""
        raise self._no_async()

    async def awrite(self, rows: Sequence[OutboxRow]) -> None:
        """Django has no transactions for asyncio. Raises `ConfigError`."""
        raise self._no_async()

    def _no_async(self) -> ConfigError:
        return ConfigError(
            "Django's transactions are not for asyncio, so no job can be written in one from there.",
            hint="Use dispatch, inside sync_to_async together with the transaction.",
        )
