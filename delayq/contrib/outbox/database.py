"""The database of an outbox, as its relay sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from delayq.core.errors import BackendError, BackendUnavailable, ConfigError
from delayq.core.mask import mask_url

_DRIVERS: Final = {"postgresql": "psycopg", "postgres": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
_NO_TABLE: Final = re.compile(r"no such table|does not exist|doesn't exist")
_LOCKING: Final = ("postgresql", "mysql", "mariadb")


class Database:
    """An engine of the relay's own. An application's URL will do: what it says of a driver for asyncio is left out."""

    def __init__(self, url: str | URL) -> None:
        self.engine = _engine(url)
        self.where = self.engine.url.render_as_string(hide_password=True)

    @property
    def locks_rows(self) -> bool:
        """Whether it can lock rows, and skip those that are locked."""
        return self.engine.dialect.name in _LOCKING

    @property
    def file(self) -> str | None:
        """Where an SQLite database lies; None for any other."""
        return self.engine.url.database if self.engine.dialect.name == "sqlite" else None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that writes. On SQLite it takes the lock for writing at its beginning, and waits for it."""
        with (
            self._told(),
            self.engine.connect().execution_options(delayq_writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that does not write."""
        with self._told(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as ours. One that may pass is `BackendUnavailable`."""
        try:
            yield
        except DBAPIError as error:
            said = str(error.orig).strip() or type(error.orig).__name__
            text = f"The database {self.where} said no: {said.splitlines()[0]}."
            passing = isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
            if passing and not _NO_TABLE.search(said):  # SQLite says that as it says "locked"
                raise BackendUnavailable(text) from error
            hint = "`delayq outbox sql` prints what creates the table." if _NO_TABLE.search(said) else ""
            raise BackendError(text, hint=hint) from error
        except SQLAlchemyError as error:
            raise BackendError(f"The database {self.where} cannot be used: {error}.") from error


def _engine(url: str | URL) -> Engine:
    try:
        parsed = make_url(url)
        kind = parsed.drivername.partition("+")[0]
        driver = _DRIVERS.get(kind)
        known = "postgresql" if kind == "postgres" else kind
        engine = create_engine(parsed.set(drivername=f"{known}+{driver}" if driver else known), pool_pre_ping=True)
    except ArgumentError:
        raise ConfigError(
            f"{mask_url(str(url))!r} is no URL of a database.", hint="For example: postgresql://shop@localhost/shop"
        ) from None
    except (ImportError, NoSuchModuleError) as error:
        raise ConfigError(
            f"The database {mask_url(str(url))} needs a driver that is not here: {error}.",
            hint="For PostgreSQL: pip install 'delayq[postgres]'.",
        ) from error
    if known == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigError("An SQLite database in memory has no outbox to read.", hint="Name its file.")
        event.listen(engine, "connect", _sqlite_connect)
        event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_connect(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself
    connection.text_factory = _text  # text that is no UTF-8 is a fault of its row, not of the database
    connection.execute("PRAGMA busy_timeout = 5000")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _sqlite_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("delayq_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
