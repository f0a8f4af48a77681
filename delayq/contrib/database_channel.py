"""The channel `database`: notifications as rows, for a page that shows them. Needs the extra `database`.

    channel = DatabaseChannel("postgresql+psycopg://shop@localhost/shop")
    channel.create_table()                              or a migration of your own, made from `channel.table`
    use_channel("database", channel)

    notify(Recipient({"database": "user-42"}), InvoicePaid(invoice_id=7))
    channel.unread("user-42")                           the newest first

The answer of `to_database` is kept as JSON. A notification is one row however often it is delivered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from delayq.core.errors import ConfigError, NotDelivered
from delayq.core.signals import Fail
from delayq.jobs.notifications.channel import Letter

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError
except ImportError as error:
    raise ConfigError(
        "The channel database needs SQLAlchemy.", hint="Install it: pip install 'delayq[database]'."
    ) from error


class DatabaseChannel:
    """Keeps notifications in `table`. `engine` is one of SQLAlchemy's, or a URL to make it from.

    An address is whatever your program calls the recipient.
    """

    def __init__(self, engine: sa.Engine | str, *, table: str = "notifications") -> None:
        self.engine = sa.create_engine(engine) if isinstance(engine, str) else engine
        self.table = sa.Table(
            table,
            sa.MetaData(),
            sa.Column("id", sa.String(255), primary_key=True),
            sa.Column("address", sa.String(255), primary_key=True),
            sa.Column("name", sa.String(255), nullable=False),
            sa.Column("data", sa.JSON, nullable=False),
            sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
            sa.Column("read_at", sa.DateTime(timezone=True)),
            sa.Index(f"{table}_by_address", "address", "created_at"),
        )
        self._pid = os.getpid()

    def create_table(self) -> None:
        """Make the table if it is not there."""
        self.table.metadata.create_all(self._here())

    def deliver(self, letter: Letter) -> None:
        """Write one row; that it is there already is as good. `Fail`s for what is no JSON, raises `NotDelivered`."""
        try:
            data = msgspec.to_builtins(letter.message)
            msgspec.json.encode(data)
        except (TypeError, ValueError) as error:
            raise Fail(error) from error
        row = {"id": letter.id, "address": letter.address, "name": letter.name, "data": data, "created_at": _now()}
        try:
            with self._here().begin() as connection:
                connection.execute(self.table.insert().values(row))
        except IntegrityError as error:
            if not self._has(letter):
                raise NotDelivered(f"The table {self.table.name} refused the row: {error}.") from error
        except SQLAlchemyError as error:
            raise NotDelivered(f"The database did not take the notification: {error}.") from error

    def unread(self, address: str, *, limit: int = 100) -> list[Mapping[str, Any]]:
        """What nobody has marked as read, the newest first; each with the columns of the table."""
        table = self.table
        wanted = sa.select(table).where(table.c.address == address, table.c.read_at.is_(None))
        with self._here().connect() as connection:
            rows = connection.execute(wanted.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit))
            return [dict(row) for row in rows.mappings()]

    def mark_read(self, address: str, *ids: str) -> int:
        """Mark these as read, or all of the address when none is named; how many were not read yet."""
        table = self.table
        change = table.update().where(table.c.address == address, table.c.read_at.is_(None))
        if ids:
            change = change.where(table.c.id.in_(ids))
        with self._here().begin() as connection:
            return connection.execute(change.values(read_at=_now())).rowcount

    def _has(self, letter: Letter) -> bool:
        table = self.table
        same = sa.select(table.c.id).where(table.c.id == letter.id, table.c.address == letter.address)
        with self._here().connect() as connection:
            return connection.execute(same).first() is not None

    def _here(self) -> sa.Engine:
        """The engine; a worker's child leaves alone the connections that its parent opened."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.engine.dispose(close=False)
        return self.engine


def _now() -> datetime:
    return datetime.now(UTC)
