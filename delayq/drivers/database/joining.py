"""The application's own transaction, whatever library knows it, with jobs written in it. Each is imported when met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.orm import Session, scoped_session

from delayq.core.errors import ConfigError
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.outbox.asyncio_kinds import asyncio_kinds

T = TypeVar("T")
_PLAIN: Final = (Session, scoped_session, Connection)
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_ALIASES: Final = {"mariadb": "mysql", "postgres": "postgresql"}


class Joined(Protocol):
    """One transaction."""

    def place(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Write jobs in it."""

    async def aplace(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """As `place`."""

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do something in it."""

    async def arun(self, work: Callable[[Connection], T]) -> T:
        """As `run`."""


def joined_to(session: object, broker: DatabaseBroker) -> Joined | None:
    """The transaction of that session; None when it belongs to another database, or is no session at all."""
    if isinstance(session, str):
        from delayq.drivers.database.django import DjangoJoined, place_of_alias

        same = place_of_alias(session) == place_of_url(broker.database.engine.url)
        return DjangoJoined(session, broker) if same else None
    if not isinstance(session, (*_PLAIN, *asyncio_kinds())):
        return None
    bind = _bind_of(session)
    same = bind is not None and place_of_url(bind.engine.url) == place_of_url(broker.database.engine.url)
    return SqlAlchemyJoined(session, broker) if same else None


def place_of_url(url: URL) -> tuple[str, str, int, str]:
    """Where a URL leads: the kind of database, its host or socket, its port, its name or file."""
    kind = url.drivername.partition("+")[0]
    kind = _ALIASES.get(kind, kind)
    name = url.database or ""
    if kind == "sqlite":
        return kind, "", 0, str(Path(name).resolve()) if name not in ("", ":memory:") else name
    sockets = [url.query.get(word) for word in ("host", "unix_socket")]
    host = url.host if url.host not in (None, "", "localhost") else next((str(s) for s in sockets if s), "localhost")
    return kind, str(host), url.port or _PORTS.get(kind, 0), name


class SqlAlchemyJoined:
    """That of an SQLAlchemy session or connection. A plain one may be used from a coroutine; it blocks as always."""

    def __init__(self, session: Any, broker: DatabaseBroker) -> None:
        self._session = session
        self._broker = broker

    def place(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Over the session's connection."""
        return self.run(lambda connection: self._broker.place(connection, items, on_conflict))

    async def aplace(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """As `place`, awaited where the session is."""
        return await self.arun(lambda connection: self._broker.place(connection, items, on_conflict))

    def run(self, work: Callable[[Connection], T]) -> T:
        """Over the session's connection; its transaction begins here if it has not."""
        if not isinstance(self._session, _PLAIN):
            raise ConfigError(
                "An asyncio session cannot be written in without awaiting it.", hint="Use adispatch, and await it."
            )
        session = self._session
        return work(session if isinstance(session, Connection) else session.connection())

    async def arun(self, work: Callable[[Connection], T]) -> T:
        """As `run`, awaited where the session is."""
        if isinstance(self._session, _PLAIN):
            return self.run(work)
        session = self._session
        connection = await session.connection() if hasattr(session, "connection") else session
        answer: T = await connection.run_sync(work)
        return answer


def _bind_of(session: Any) -> Connection | Engine | None:
    """The engine or connection a session writes to."""
    if isinstance(session, Connection):
        return session
    if isinstance(session, Session | scoped_session):
        found: Connection | Engine = session.get_bind()
        return found
    inner = getattr(session, "sync_connection", None)
    if inner is None:
        inner = getattr(session, "get_bind", lambda: None)()
    return inner if isinstance(inner, Connection | Engine) else None
