"""The database itself: its engine, transactions that may be begun again, and its errors in our words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from delayq.core.errors import BackendUnavailable, ConfigError, DelayqError
from delayq.core.mask import mask_url
from delayq.drivers.database.faults import Fault, fault_of, lost_at_commit, said_by

T = TypeVar("T")

_DRIVERS: Final = {
    "postgresql": ("postgresql", "psycopg"),
    "postgres": ("postgresql", "psycopg"),
    "mysql": ("mysql", "pymysql"),
    "mariadb": ("mariadb", "pymysql"),
    "sqlite": ("sqlite", ""),
}
_EXTRAS: Final = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
_ANEW: Final = 5
"""How often a transaction is begun again that the database gave up in favour of another."""
_NAP_S: Final = 0.02


class Database:
    """One database. `lock_ms`: how long SQLite waits for a lock that somebody else holds.

    `answer_ms`: how long to wait for a server to answer; None = as long as its driver does, and 10 s to connect.
    """

    def __init__(self, url: str | URL, *, lock_ms: int = 5_000, answer_ms: int | None = None) -> None:
        self.engine = _engine(url, lock_ms, answer_ms)
        plain = self.engine.url.set(drivername=self.engine.dialect.name)  # nobody asked for the driver's name
        self.where = plain.render_as_string(hide_password=True)
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

    def translated(self, error: Exception) -> DelayqError:
        """An error of the database as ours."""
        return said_by(error, self.where, self.kind, self._lock_ms)

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


def _engine(url: str | URL, lock_ms: int, answer_ms: int | None) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(
            f"{mask_url(str(url))!r} is no URL of a database.",
            hint="For example: sqlite:////var/lib/shop/jobs.db or postgresql://shop@localhost/shop",
        ) from None
    kind = parsed.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise ConfigError(
            f"No jobs can be kept on {kind} ({mask_url(str(url))}).",
            hint="They can on SQLite, PostgreSQL, MySQL and MariaDB.",
        )
    known, driver = _DRIVERS[kind]
    if known == "sqlite":
        return _sqlite(parsed, lock_ms)
    try:
        named = parsed.set(drivername=f"{known}+{driver}")
        isolation = "READ COMMITTED"  # with more, MySQL locks the gaps between rows too, and writers meet there
        waits = _waits(known, answer_ms)
        engine = create_engine(named, isolation_level=isolation, pool_size=5, max_overflow=15, connect_args=waits)
    except (ImportError, NoSuchModuleError) as error:
        raise ConfigError(
            f"The database {mask_url(str(url))} needs a driver that is not here: {error}.",
            hint=f"pip install 'delayq[{_EXTRAS[known]}]'",
        ) from error
    if known != "postgresql":
        event.listen(engine, "connect", _mysql_connect)
    return engine


def _waits(kind: str, answer_ms: int | None) -> dict[str, Any]:
    """How long the driver waits. A statement of PostgreSQL's is ended by the server."""
    connect_s = 10 if answer_ms is None else max(1, -(-answer_ms // 1000))
    waits: dict[str, Any] = {"connect_timeout": connect_s}
    if kind == "postgresql" and answer_ms is not None:
        waits["options"] = f"-c statement_timeout={answer_ms}"
    if kind != "postgresql" and answer_ms is not None:
        waits |= {"read_timeout": connect_s, "write_timeout": connect_s}
    return waits


def _sqlite(parsed: URL, lock_ms: int) -> Engine:
    if parsed.database in (None, "", ":memory:") or "mode" in parsed.query:
        raise ConfigError(
            "An SQLite database in memory cannot be shared with a worker.", hint="Name its file: sqlite:///jobs.db"
        )
    engine = create_engine(parsed.set(drivername="sqlite"), connect_args={"timeout": lock_ms / 1000})

    def connected(connection: Any, record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.text_factory = _text  # text that is no UTF-8 is a fault of its row, not of the database
        connection.execute(f"PRAGMA busy_timeout = {lock_ms}")
        connection.execute("PRAGMA journal_mode = WAL")  # readers and the one writer do not wait for each other
        connection.execute("PRAGMA synchronous = FULL")  # what is committed outlives a loss of power

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _sqlite_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("delayq_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _mysql_connect(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', SESSION innodb_lock_wait_timeout = 10")


def no_skipping(where: str, version: str) -> BackendUnavailable:
    """The error of a server that cannot skip locked rows."""
    return BackendUnavailable(
        f"The database {where} is {version}, which cannot skip locked rows.",
        hint="It takes MySQL 8.0.1, MariaDB 10.6 or PostgreSQL 9.5.",
    )
