"""Makes the tables and brings them up to date: what is there stays, what is missing is added. As often as one likes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Connection, Index, Table, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect, Inspector
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from delayq.core.errors import BackendError, ConfigError
from delayq.drivers.database.engine import Database
from delayq.drivers.database.tables import Tables, Wanted, own_columns

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
    what, _, _ = step.rpartition(" ")
    return f"{what} is missing"


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
    there = inspect(connection)
    steps: list[Step] = []
    for table in tables.all:
        if there.has_table(table.name, schema=table.schema):
            steps += _additions(connection, there, table, tables.other_names)
        else:
            steps.append((f"table {table.fullname} created", CreateTable(table)))
            steps += [(f"index {index.name} created", CreateIndex(index)) for index in _indexes(table)]
    return steps


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
        (f"column {table.fullname}.{column.name} added", _add(connection, table, column))
        for column in own
        if column.name not in has
    ]
    known = {index["name"] for index in there.get_indexes(table.name, schema=table.schema)}
    steps += [
        (f"index {index.name} created", CreateIndex(index)) for index in _indexes(table) if index.name not in known
    ]
    return steps


def _add(connection: Connection, table: Table, column: Column[object]) -> str:
    dialect = connection.dialect
    name = dialect.identifier_preparer.format_table(table)
    return f"ALTER TABLE {name} ADD COLUMN {CreateColumn(column).compile(dialect=dialect)}"


def _indexes(table: Table) -> list[Index]:
    return sorted(table.indexes, key=lambda index: str(index.name))
