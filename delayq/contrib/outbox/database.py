"""The database of an outbox, as its relay sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL, Connection
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)

from delayq.core.errors import BackendError, BackendUnavailable
from delayq.drivers.database.opening import Manner, open_engine

_NO_TABLE: Final = re.compile(r"no such table|does not exist|doesn't exist")
_LOCKING: Final = ("postgresql", "mysql", "mariadb")


class Database:
    """An engine of the relay's own. An application's URL will do: what it says of a driver for asyncio is left out."""

    def __init__(self, url: str | URL) -> None:
        self.engine = open_engine(url, Manner(theirs=True))
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
