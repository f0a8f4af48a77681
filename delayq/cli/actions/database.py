"""database migrate, sql."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.cli.needs import sqlalchemy_for
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import AWAY, BackendError, ConfigError, DelayqError
from delayq.drivers.failed.choosing import in_database
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

if TYPE_CHECKING:
    from delayq.drivers.database.engine import Database
    from delayq.drivers.database.tables import Wanted
    from delayq.manager import Manager

DRIVER: Final = "database"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Whose tables, and whether anything is to be changed."""

    connection: str | None
    database: str | None
    check: bool


def migrate(session: Session, wishes: Wishes, *, as_json: bool) -> int:
    """Bring the tables up to date; the exit code. One that cannot be keeps nobody from the others."""
    settings = session.settings()
    with closing(make_manager(settings)) as manager, sqlalchemy_for("A table of jobs in a database"):
        names, lacking, broken = _names(manager, settings, wishes), 0, list[DelayqError]()
        for name in names:
            try:
                lacking += _one(session, manager, name, check=wishes.check, as_json=as_json)
            except (BackendError, ConfigError) as error:
                if len(names) == 1:
                    raise
                broken.append(error)
                _tell(session, name, error, as_json=as_json)
    if broken:
        away = next((error for error in broken if isinstance(error, AWAY)), broken[0])
        what = "looked at" if wishes.check else "brought up to date"
        session.out.note(f"{len(names) - len(broken)} of {len(names)} connections {what}.")
        return away.exit_code
    return 1 if lacking and wishes.check else 0


def sql(session: Session, kind: str) -> None:
    """The statements that create the tables."""
    with sqlalchemy_for("A table of jobs in a database"):
        from delayq.drivers.database.schema import sql_of
        from delayq.drivers.database.tables import tables
    for line in sql_of(kind, tables()).splitlines():
        session.out.line(line)


def _one(session: Session, manager: Manager, name: str, *, check: bool, as_json: bool) -> int:
    """One connection; how many steps there were."""
    from delayq.drivers.database import schema

    database, tables = _place(manager, name)
    with closing(database):
        steps = schema.lacking(database, tables) if check else schema.migrate(database, tables)
    if as_json:
        session.out.json({"connection": name, "database": database.where, "missing" if check else "done": steps})
        return len(steps)
    for step in steps:
        session.out.line(step)
    done = f"{count(len(steps), 'step')} {'missing' if check else 'done'}" if steps else "everything is there"
    session.out.note(f"{name}: {database.where}: {done}.")
    return len(steps)


def _tell(session: Session, name: str, error: DelayqError, *, as_json: bool) -> None:
    if as_json:
        session.out.json({"connection": name, "error": error.message, "hint": error.hint})
    session.out.error(f"{name}: {error.message}", error.hint)


def _names(manager: Manager, settings: Settings, wishes: Wishes) -> Sequence[str]:
    """The connections that are meant. Raises `ConfigError` when there are none."""
    known = [name for name, given in settings.connections.items() if _in_database(given)]
    if wishes.database is not None:
        manager.define(DRIVER, ConnectionSettings(driver=DRIVER, place=wishes.database))
        known = [DRIVER]
    said = settings.connection if settings.origin_of("connection") == "flag" else None
    one = wishes.connection or (said if wishes.database is None else None)
    if one is not None:
        return [_checked(manager, one, known)]
    if not known:
        raise ConfigError(
            "No connection keeps its jobs or its failed jobs in a database, so there are no tables to make.",
            hint="Name a database with --database, or add one to delayq.toml: see docs/database.md.",
        )
    return known


def _checked(manager: Manager, name: str, known: Sequence[str]) -> str:
    """Raises `ConfigError` for a connection that needs no tables."""
    if not _in_database(manager.given(name)):
        those = f"Those that do: {', '.join(known)}." if known else "No connection in the settings does."
        raise ConfigError(
            f"The connection {name!r} keeps neither its jobs nor its failed jobs in a database, so it needs no tables.",
            hint=f"{those} Or name a database with --database.",
        )
    return name


def _in_database(given: ConnectionSettings) -> bool:
    return given.driver == DRIVER or in_database(given.options.get("failed"))


def _place(manager: Manager, name: str) -> tuple[Database, Wanted]:
    """The database of that connection, and what it needs there: all tables, or that of failed jobs."""
    from delayq.drivers.database.connection import DatabaseConnection
    from delayq.drivers.database.engine import Database
    from delayq.drivers.database.faults import Owner
    from delayq.drivers.database.tables import FailedAlone, tables

    given = manager.given(name)
    if given.driver != DRIVER:
        return Database(given.options["failed"], owner=Owner(name, "failed")), FailedAlone(tables().failed)
    connection = manager.connection(name)
    if not isinstance(connection, DatabaseConnection):
        raise ConfigError(
            f"The driver of the connection {name!r} is not delayq's own, so its tables are not known here.",
            hint="Name a database with --database.",
        )
    return connection.broker.database, connection.broker.tables
