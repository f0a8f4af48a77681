"""Makes the tables and brings them up to date: what is there stays, what is missing is added. As often as one likes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Connection, Index, Table, inspect, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect, Inspector
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from delayq.core.errors import BackendError, ConfigError
from delayq.drivers.database.engine import Database
from delayq.drivers.database.tables import (
    ANY_TEXT,
    OLD_ABOUT,
    Tables,
    Wanted,
    about_of,
    free_texts,
    own_columns,
)

_CHARACTER_SETS: Final = """
SELECT column_name, character_set_name FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name AND character_set_name IS NOT NULL
"""
_CLEARED: Final = ("moved", "dropped")
_DIALECTS: Final[dict[str, Any]] = {"postgresql": postgresql, "sqlite": sqlite, "mysql": mysql}


def migrate(database: Database, tables: Wanted) -> list[str]:
    """Create what is missing; what was done, a line each. Nothing done: an empty list.

    Raises `BackendError` for a table of that name that is not Laravel's.
    """
    return database.write(lambda connection: _brought_up(connection, tables))


def lacking(database: Database, tables: Wanted) -> list[str]:
    """What a migration would do, and changes nothing."""
    return database.read(lambda connection: [text for text, _ in _steps(connection, tables)])


def refuse_lacking(database: Database, tables: Wanted) -> None:
    """Raises `ConfigError` with the command that makes what is missing."""
    missing = lacking(database, tables)
    if missing:
        raise ConfigError(
            f"The database {database.where} is not ready: {_as_missing(missing[0])}.",
            hint=f"{database.owner.migrate} makes what is missing.",
        )


def _as_missing(step: str) -> str:
    what, _, done = step.rpartition(" ")
    return f"{what} is not yet {done}" if done in _CLEARED else f"{what} is missing"


def sql_of(kind: str, tables: Tables) -> str:
    """The statements that create everything on that kind of database, for migrations that are written by hand."""
    dialect: Dialect = _DIALECTS[kind].dialect()
    steps: list[CreateTable | CreateIndex] = []
    for table in tables.all:
        steps += [CreateTable(table), *map(CreateIndex, _indexes(table))]
    texts = (str(step.compile(dialect=dialect)).strip() for step in steps)
    return "".join(f"{text};\n" for text in texts).replace("\t", "    ").replace(" \n", "\n")


Step = tuple[str, "CreateTable | CreateIndex | str"]


def _brought_up(connection: Connection, tables: Wanted) -> list[str]:
    steps = _steps(connection, tables)
    for _, step in steps:
        if isinstance(step, str):
            connection.exec_driver_sql(step)
        else:
            connection.execute(step)
    return [text for text, _ in steps]


def _steps(connection: Connection, tables: Wanted) -> list[Step]:
    _refuse_few_letters(connection)
    there = inspect(connection)
    steps: list[Step] = []
    for table in tables.all:
        if there.has_table(table.name, schema=table.schema):
            steps += _additions(connection, there, table, tables.other_names)
            steps += _widenings(connection, table)
        else:
            steps.append((f"table {table.fullname} created", CreateTable(table)))
            steps += [(f"index {index.name} created", CreateIndex(index)) for index in _indexes(table)]
    return steps + _moves(connection, there, tables.failed)


def _moves(connection: Connection, there: Inspector, failed: Table) -> list[Step]:
    """Move what earlier versions kept in columns of `failed_jobs` into the table beside it, and drop these columns.

    As often as one likes: MySQL commits each of these steps, so a run that was killed may have left half of them.
    """
    if not there.has_table(failed.name, schema=failed.schema):
        return []
    has = {column["name"] for column in there.get_columns(failed.name, schema=failed.schema)}
    old, about = [name for name in OLD_ABOUT if name in has], about_of(failed)
    steps: list[Step] = []
    if len(old) == len(OLD_ABOUT):
        formatted = connection.dialect.identifier_preparer.format_table
        source, target = formatted(failed), formatted(about)
        move = (
            f"INSERT INTO {target} (number, uuid, connection, failed_ms, about) "
            f"SELECT id, uuid, connection, delayq_failed_ms, delayq_about FROM {source} "
            f"WHERE delayq_about IS NOT NULL AND id NOT IN (SELECT number FROM {target})"
        )
        steps.append((f"what delayq knows of rows in {failed.fullname} moved", move))
    drop = f"ALTER TABLE {connection.dialect.identifier_preparer.format_table(failed)} DROP COLUMN"
    return steps + [(f"column {failed.fullname}.{name} dropped", f"{drop} {name}") for name in reversed(old)]


def _additions(connection: Connection, there: Inspector, table: Table, other_names: str) -> list[Step]:
    """What an older table lacks. Only our own columns can be added: without one of Laravel's it is another table."""
    has = {column["name"] for column in there.get_columns(table.name, schema=table.schema)}
    own = own_columns(table)
    foreign = [column.name for column in table.columns if column not in own and column.name not in has]
    if foreign:
        raise BackendError(
            f"There is a table {table.fullname}, and it is not Laravel's: it has no column {foreign[0]}.",
            hint=other_names,
        )
    steps: list[Step] = [
        (f"column {table.fullname}.{column.name} added", _alter(connection, table, column, "ADD"))
        for column in own
        if column.name not in has
    ]
    known = {index["name"] for index in there.get_indexes(table.name, schema=table.schema)}
    steps += [
        (f"index {index.name} created", CreateIndex(index)) for index in _indexes(table) if index.name not in known
    ]
    return steps


def _widenings(connection: Connection, table: Table) -> list[Step]:
    """Columns of a table on MySQL that cannot hold every letter, as its database's default was when it was made."""
    free = free_texts(table, connection.dialect)
    if not free:
        return []
    asked = text(_CHARACTER_SETS).bindparams(schema=table.schema, name=table.name)
    sets = {str(row[0]): str(row[1]) for row in connection.execute(asked)}
    return [
        (f"column {table.fullname}.{column.name} for every letter made", _alter(connection, table, column, "MODIFY"))
        for column in free
        if sets.get(column.name, ANY_TEXT) != ANY_TEXT
    ]


def _refuse_few_letters(connection: Connection) -> None:
    """Raises `ConfigError` for a PostgreSQL that has not every letter: a job could not be kept, or its error not."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise ConfigError(
            f"The database {connection.engine.url.database!r} has the encoding {encoding}, which has not every letter.",
            hint="Create another for jobs: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
        )


def _alter(connection: Connection, table: Table, column: Column[Any], verb: str) -> str:
    dialect = connection.dialect
    name = dialect.identifier_preparer.format_table(table)
    return f"ALTER TABLE {name} {verb} COLUMN {CreateColumn(column).compile(dialect=dialect)}"


def _indexes(table: Table) -> list[Index]:
    return sorted(table.indexes, key=lambda index: str(index.name))
