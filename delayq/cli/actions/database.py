"""database migrate, sql."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delayq.cli.needs import sqlalchemy_for
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import ConfigError
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

if TYPE_CHECKING:
    from delayq.drivers.database.connection import DatabaseConnection
    from delayq.manager import Manager

DRIVER = "database"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Whose tables, and whether anything is to be changed."""

    connection: str | None
    database: str | None
    check: bool


def migrate(session: Session, wishes: Wishes, *, as_json: bool) -> int:
    """Bring the tables up to date; the exit code."""
    settings = session.settings()
    with closing(make_manager(settings)) as manager, sqlalchemy_for("A table of jobs in a database"):
        from delayq.drivers.database import schema

        lacking = 0
        for connection in _connections(manager, settings, wishes):
            database, tables = connection.broker.database, connection.broker.tables
            steps = schema.lacking(database, tables) if wishes.check else schema.migrate(database, tables)
            lacking += len(steps) if wishes.check else 0
            if as_json:
                word = "missing" if wishes.check else "done"
                session.out.json({"connection": connection.name, "database": database.where, word: steps})
                continue
            for step in steps:
                session.out.line(step)
            session.out.note(_said(database.where, len(steps), check=wishes.check))
    return 1 if lacking else 0


def sql(session: Session, kind: str) -> None:
    """The statements that create the tables."""
    with sqlalchemy_for("A table of jobs in a database"):
        from delayq.drivers.database.schema import sql_of
        from delayq.drivers.database.tables import tables
    for line in sql_of(kind, tables()).splitlines():
        session.out.line(line)


def _connections(manager: Manager, settings: Settings, wishes: Wishes) -> Iterator[DatabaseConnection]:
    """Those that are meant. Raises `ConfigError` when there are none."""
    from delayq.drivers.database.connection import DatabaseConnection

    known = [name for name, given in settings.connections.items() if given.driver == DRIVER]
    if wishes.database is not None:
        manager.define(DRIVER, ConnectionSettings(driver=DRIVER, place=wishes.database))
        known = [DRIVER]
    said = settings.connection if settings.origin_of("connection") == "flag" else None
    one = wishes.connection or (said if wishes.database is None else None)
    names = known if one is None else [one]
    if not names:
        raise ConfigError(
            "No connection has the driver database, so there are no tables to make.",
            hint="Name a database with --database, or add one to delayq.toml: see docs/database.md.",
        )
    for name in names:
        connection = manager.connection(name)
        if not isinstance(connection, DatabaseConnection):
            raise ConfigError(f"The connection {name!r} keeps its jobs in no database.", hint=f"Known: {known}.")
        yield connection


def _said(where: str, steps: int, *, check: bool) -> str:
    if not steps:
        return f"{where}: everything is there."
    return f"{where}: {count(steps, 'step')} {'missing' if check else 'done'}."
