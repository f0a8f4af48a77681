"""Waiting for work without asking for it over and over: how each database tells that something was written.

    SQLite            the number PRAGMA data_version, which another connection's commit changes; asked for 200 times a
                      second, which costs next to nothing
    PostgreSQL        LISTEN and NOTIFY; what Laravel pushes is found by the next look, within a second
    MySQL, MariaDB    nothing; one looks again ten times a second

Hints may be missed: who waits looks again within a second, whatever it hears.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Table, func, select

from delayq.drivers.broker import Item
from delayq.drivers.database.engine import Database

FILE_S: Final = 0.005
POLL_S: Final = 0.1


class Waker(Protocol):
    """Of one process. `wait` may be torn by a signal."""

    def hint(self, connection: Connection, queues: Iterable[str]) -> None:
        """Tell, with this transaction, who waits for these queues."""

    def wait(self, seconds: float) -> None:
        """Wait for a hint, or until the time is over."""

    def close(self) -> None:
        """Close what is open; it may be used again."""


def waker_of(database: Database, jobs: Table) -> Waker:
    """The waker for a kind of database."""
    if database.kind == "sqlite":
        return FileWaker(database)
    if database.kind == "postgresql":
        return ListenWaker(database, f"delayq_{jobs.fullname}")
    return PollWaker()


def queues_of(items: Iterable[Item]) -> Sequence[str]:
    """Each once."""
    return tuple(dict.fromkeys(item.queue for item in items))


class PollWaker:
    """Hears nothing."""

    def hint(self, connection: Connection, queues: Iterable[str]) -> None:
        """Nobody listens."""

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(min(seconds, POLL_S))

    def close(self) -> None:
        """Nothing is open."""


class FileWaker:
    """Sees commits of other connections to an SQLite file, over a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._raw: Any = None
        self._seen: int | None = None

    def hint(self, connection: Connection, queues: Iterable[str]) -> None:
        """The commit is the hint."""

    def wait(self, seconds: float) -> None:
        """Sleep until the file's version is another than when it was last looked at."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            version = self._version()
            if version != self._seen:
                self._seen = version
                return
            time.sleep(min(left, FILE_S))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    def _version(self) -> int:
        with self._lock:
            try:
                if self._raw is None:
                    self._raw = self._database.detached()
                cursor = self._raw.execute("PRAGMA data_version")
                return int(cursor.fetchone()[0])
            except Exception as error:
                self._raw = None
                raise self._database.translated(self._database.dressed(error)) from error


class ListenWaker:
    """Listens on a channel of PostgreSQL, over a connection of its own."""

    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._raw: Any = None

    def hint(self, connection: Connection, queues: Iterable[str]) -> None:
        """One notification for each queue; PostgreSQL sends it with the commit."""
        for queue in queues:
            connection.execute(select(func.pg_notify(self._channel, queue)))

    def wait(self, seconds: float) -> None:
        """Wait for a notification. The first call only begins to listen: what came before may have been missed."""
        try:
            if self._raw is None:
                self._raw = self._listening()
                return
            for _ in self._raw.notifies(timeout=seconds, stop_after=1):
                break
            for _ in self._raw.notifies(timeout=0):  # those that came meanwhile say the same
                continue
        except BaseException as error:
            self.close()  # half read, perhaps
            if isinstance(error, Exception):
                raise self._database.translated(self._database.dressed(error)) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    def _listening(self) -> Any:
        raw = self._database.detached()
        raw.autocommit = True
        raw.execute(f'LISTEN "{self._channel}"')
        return raw
