"""The one room where engines of SQLAlchemy's are made: which driver, how it waits, what SQLite and MySQL are told.

An engine on the application's own database (an outbox) leaves that database's settings alone; one that keeps delayq's
jobs sets them.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from delayq.core.errors import ConfigError
from delayq.core.mask import mask_url

_DRIVERS: Final = {
    "postgresql": ("postgresql", "psycopg"),
    "postgres": ("postgresql", "psycopg"),
    "mysql": ("mysql", "pymysql"),
    "mariadb": ("mariadb", "pymysql"),
    "sqlite": ("sqlite", ""),
}
_EXTRAS: Final = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlite": "database"}
_UNREACHABLE: Final = 2003
"""MySQL's number for a server that cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How an engine is made.

    `lock_ms`: how long SQLite waits for a lock that somebody else holds. `answer_ms`: how long to wait for a server to
    answer; None = as long as its driver does, and 10 s to connect. `theirs`: the database is the application's, on
    whatever SQLAlchemy knows; what its URL says of a driver for asyncio is left out here as everywhere.
    """

    lock_ms: int = 5_000
    answer_ms: int | None = None
    theirs: bool = False


def open_engine(url: str | URL, manner: Manner) -> Engine:
    """An engine that has not connected yet. Raises `ConfigError`."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(
            f"{mask_url(str(url))!r} is no URL of a database.",
            hint="For example: sqlite:////var/lib/shop/jobs.db or postgresql://shop@localhost/shop",
        ) from None
    kind = parsed.drivername.partition("+")[0]
    if kind not in _DRIVERS and not manner.theirs:
        raise ConfigError(
            f"No jobs can be kept on {kind} ({mask_url(str(url))}).",
            hint="They can on SQLite, PostgreSQL, MySQL and MariaDB.",
        )
    known, driver = _DRIVERS.get(kind, (kind, ""))
    try:
        if known == "sqlite":
            return _sqlite(parsed, manner)
        return _server(parsed.set(drivername=f"{known}+{driver}" if driver else known), known, manner)
    except (ImportError, NoSuchModuleError) as error:
        extra = _EXTRAS.get(known)
        raise ConfigError(
            f"The database {mask_url(str(url))} needs a driver that is not here: {error}.",
            hint=f"pip install 'delayq[{extra}]'" if extra else "Install the package of SQLAlchemy's that brings it.",
        ) from error


def _server(named: URL, known: str, manner: Manner) -> Engine:
    if manner.theirs:
        engine = create_engine(named, pool_pre_ping=True)
    else:
        isolation = "READ COMMITTED"  # with more, MySQL locks the gaps between rows too, and writers meet there
        waits = _waits(known, manner.answer_ms)
        engine = create_engine(named, isolation_level=isolation, pool_size=5, max_overflow=15, connect_args=waits)
    if known in ("mysql", "mariadb"):
        event.listen(engine, "do_connect", _mysql_by_socket)
        if not manner.theirs:
            event.listen(engine, "connect", _mysql_connected)
    return engine


def _waits(kind: str, answer_ms: int | None) -> dict[str, Any]:
    """How long the driver waits. A statement of PostgreSQL's is ended by the server."""
    connect_s = 10 if answer_ms is None else max(1, -(-answer_ms // 1000))
    waits: dict[str, Any] = {"connect_timeout": connect_s}
    if kind == "postgresql":
        waits["client_encoding"] = "utf8"  # whatever the database's own is
    if kind == "postgresql" and answer_ms is not None:
        waits["options"] = f"-c statement_timeout={answer_ms}"
    if kind != "postgresql" and answer_ms is not None:
        waits |= {"read_timeout": connect_s, "write_timeout": connect_s}
    return waits


def _sqlite(parsed: URL, manner: Manner) -> Engine:
    if parsed.database in (None, "", ":memory:") or "mode" in parsed.query:
        raise ConfigError(
            f"An SQLite database in memory cannot be shared with a {'relay' if manner.theirs else 'worker'}.",
            hint="Name its file: sqlite:///jobs.db",
        )
    engine = create_engine(parsed.set(drivername="sqlite"), connect_args={"timeout": manner.lock_ms / 1000})

    def connected(connection: Any, record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.text_factory = _text  # text that is no UTF-8 is a fault of its row, not of the database
        connection.execute(f"PRAGMA busy_timeout = {manner.lock_ms}")
        if not manner.theirs:
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


def _mysql_by_socket(dialect: Any, record: object, cargs: Any, cparams: dict[str, Any]) -> Any:
    """A connection over a Unix socket that is opened here: PyMySQL leaves one that finds nobody unclosed."""
    path = cparams.get("unix_socket")
    module = dialect.loaded_dbapi
    if not path or module.__name__ != "pymysql":
        return None  # then SQLAlchemy connects as always
    connection = module.connect(*cargs, defer_connect=True, **cparams)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(cparams.get("connect_timeout", 10))
        opened.connect(path)
    except OSError as error:
        opened.close()
        raise module.err.OperationalError(_UNREACHABLE, f"Can't connect to the server at {path} ({error})") from error
    connection._secure = True  # as PyMySQL marks its own: nobody listens on a Unix socket, so a password may pass
    connection.connect(opened)
    return connection


def _mysql_connected(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', SESSION innodb_lock_wait_timeout = 10")
