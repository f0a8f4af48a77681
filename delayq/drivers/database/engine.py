"""The database itself: transactions that may be begun again, and its errors in our words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from delayq.core.errors import BackendUnavailable, DelayqError
from delayq.drivers.database.faults import NOBODY, Fault, Owner, fault_of, lost_at_commit, said_by
from delayq.drivers.database.opening import Manner, open_engine

T = TypeVar("T")

_ANEW: Final = 5
"""How often a transaction is begun again that the database gave up in favour of another."""
_NAP_S: Final = 0.02


class _Undone(Exception):
    """Ends a transaction that was never meant to count."""


class Database:
    """One database. `lock_ms`: how long SQLite waits for a lock that somebody else holds.

    `answer_ms`: how long to wait for a server to answer; None = as long as its driver does, and 10 s to connect.
    `owner`: whose it is, for errors.
    """

    def __init__(
        self, url: str | URL, *, lock_ms: int = 5_000, answer_ms: int | None = None, owner: Owner = NOBODY
    ) -> None:
        self.engine = open_engine(url, Manner(lock_ms=lock_ms, answer_ms=answer_ms))
        plain = self.engine.url.set(drivername=self.engine.dialect.name)  # nobody asked for the driver's name
        self.where = plain.render_as_string(hide_password=True)
        self.owner = owner
        self._lock_ms = lock_ms
        self._pid = os.getpid()

    @property
    def kind(self) -> str:
        """sqlite, postgresql, mysql or mariadb."""
        return self.engine.dialect.name

    @property
    def file(self) -> str | None:
        """Where an SQLite database lies; None for any other."""
        return self.engine.url.database if self.kind == "sqlite" else None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction, again when the database gave it up or the connection was lost before its end.

        Raises `BackendError`; `OutcomeUnknown` when the connection was lost while it was being committed.
        """
        left = _ANEW
        while True:
            try:
                return self._once(work)
            except (DBAPIError, SQLAlchemyError) as error:
                left -= 1
                fault = fault_of(error)
                if left and fault is Fault.GAVE_WAY:
                    time.sleep(_NAP_S * (_ANEW - left))
                elif left and fault is Fault.LOST:
                    left = min(left, 1)  # the pool held a connection that was dead; the next one is new
                else:
                    raise self.translated(error) from error

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction that writes nothing. Raises `BackendError`."""
        again = True
        while True:
            try:
                with self._here().connect() as connection:
                    return work(connection)
            except (DBAPIError, SQLAlchemyError) as error:
                if not again or fault_of(error) is not Fault.LOST:
                    raise self.translated(error) from error
                again = False

    def tried(self, work: Callable[[Connection], object]) -> None:
        """Do `work` in a transaction, and undo it: whether it could be done. Raises `BackendError`."""

        def undone(connection: Connection) -> None:
            work(connection)
            raise _Undone

        with suppress(_Undone):
            self.write(undone)

    def translated(self, error: Exception) -> DelayqError:
        """An error of the database as ours."""
        return said_by(error, self.where, self.kind, self._lock_ms, self.owner)

    def detached(self) -> Any:
        """A connection of the driver's own that is in no pool; its owner closes it."""
        connection = self._here().raw_connection()
        raw = connection.driver_connection
        connection.detach()
        return raw

    def dressed(self, error: Exception) -> Exception:
        """An error that came from the driver itself, as SQLAlchemy would have raised it."""
        if isinstance(error, SQLAlchemyError):
            return error
        module = self.engine.dialect.loaded_dbapi
        return DBAPIError.instance(None, None, error, module.Error, dialect=self.engine.dialect)

    def close(self) -> None:
        """Close its connections; it may be used again."""
        self._here().dispose()

    def _once(self, work: Callable[[Connection], T]) -> T:
        with self._here().connect().execution_options(delayq_writes=True) as connection:
            transaction = connection.begin()
            try:
                answer = work(connection)
            except BaseException:
                if transaction.is_active:
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise lost_at_commit(self.where) from error
                raise
            return answer

    def _here(self) -> Engine:
        """The engine, in a forked process without the connections that belong to its parent."""
        if os.getpid() != self._pid:
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self.engine


def no_skipping(where: str, version: str) -> BackendUnavailable:
    """The error of a server that cannot skip locked rows."""
    return BackendUnavailable(
        f"The database {where} is {version}, which cannot skip locked rows.",
        hint="It takes MySQL 8.0.1, MariaDB 10.6 or PostgreSQL 9.5.",
    )
