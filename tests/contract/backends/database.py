"""The tables of `database`, on each kind of server: a file, PostgreSQL, MariaDB."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from delayq.drivers.database.backend import CAPABILITIES
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import tables
from tests.contract.backend import IT, Backend
from tests.support.mariadb import mariadb
from tests.support.postgres import postgres

NOBODY = {
    "sqlite": "sqlite:////nowhere/at/all/jobs.db",
    "postgresql": "postgresql://delayq@/postgres?host=/tmp/delayq-nobody-is-here",
    "mariadb": "mariadb://root@localhost/delayq?unix_socket=/tmp/delayq-nobody-is-here.sock",
}


class DatabaseHere:
    """One database for all tests; their queues have names of their own."""

    def __init__(self, kind: str, url: str) -> None:
        self._kind = kind
        self._url = url

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """The tables as they are."""
        return {"lease": lease, "connections": {IT: {"driver": "database", "url": self._url}}}

    def away(self) -> Mapping[str, Any]:
        """A socket, or a folder, that is not there."""
        return {"connections": {IT: {"driver": "database", "url": NOBODY[self._kind]}}}


@contextmanager
def sqlite() -> Iterator[str]:
    """A file."""
    with tempfile.TemporaryDirectory(prefix="dq-lite-") as folder:
        yield f"sqlite:///{folder}/jobs.db"


def _row(kind: str, server: Callable[[], AbstractContextManager[str]]) -> Backend:
    @contextmanager
    def start() -> Iterator[DatabaseHere]:
        with server() as url:
            with closing(Database(url)) as database:
                migrate(database, tables())
            yield DatabaseHere(kind, url)

    return Backend(kind, CAPABILITIES, start)


BACKENDS = [_row("sqlite", sqlite), _row("postgresql", postgres), _row("mariadb", mariadb)]
