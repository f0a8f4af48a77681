"""A transaction of Django's: jobs written over the connection of an alias."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.placing import WRITTEN, Placing, Row, row_of

T = TypeVar("T")
AFTERWARDS: Final = "Dispatch it after the commit, with after_commit=True."
_KINDS: dict[str, Any] = {"postgresql": postgresql, "sqlite": sqlite, "mysql": mysql}


def place_of_alias(alias: str) -> tuple[str, str, int, str]:
    """Where the database of an alias is, as `joining.place_of_url` says it."""
    given = _connection(alias)
    words = given.settings_dict
    name = str(words["NAME"])
    if given.vendor == "sqlite":
        return given.vendor, "", 0, str(Path(name).resolve())
    port = words.get("PORT") or {"postgresql": 5432, "mysql": 3306}.get(given.vendor, 0)
    return given.vendor, str(words.get("HOST") or "localhost"), int(port), name


class DjangoJoined:
    """Writes in the transaction under way; outside of an atomic block each write commits by itself."""

    def __init__(self, alias: str, broker: DatabaseBroker) -> None:
        self._connection = _connection(alias)
        self._broker = broker
        dialect: Dialect = _KINDS[self._connection.vendor].dialect(paramstyle="format")
        placing = Placing(broker.tables.jobs, self._connection.vendor, lambda connection, row, keeps: None)
        self._insertion: Any = placing.insertion.compile(dialect=dialect, column_keys=list(WRITTEN))
        self._search: Any = placing.search.compile(dialect=dialect)

    def place(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """A statement for each. Raises `InvalidInput` for what would have to change a job that is there."""
        if on_conflict in (OnConflict.REPLACE, OnConflict.POSTPONE):
            raise InvalidInput(
                f"on_conflict={on_conflict} cannot be done in a transaction of Django's.",
                hint=AFTERWARDS,
            )
        if any(item.lock for item in items):
            raise InvalidInput("A unique key cannot be taken in a transaction of Django's.", hint=AFTERWARDS)
        now_ms = self._broker.now_ms()
        with self._connection.cursor() as cursor:
            return [self._placed(cursor, item, row_of(item, now_ms), on_conflict) for item in items]

    def _placed(self, cursor: Any, item: Item, row: Row, on_conflict: OnConflict) -> JobRef:
        cursor.execute(str(self._search), _in_order(self._search, {"of_queue": item.queue, "of_id": item.id}))
        if cursor.fetchone() is not None:
            answer = Answer.CONFLICT if on_conflict is OnConflict.ERROR else Answer.KEPT
            return JobRef(item.id, item.queue, item.created().state, item.created().due_ms, answer, item.name)
        cursor.execute(str(self._insertion), _in_order(self._insertion, row))
        return item.created()

    def run(self, work: Callable[[Connection], T]) -> T:
        """A batch takes many statements, and Django's connection takes none of SQLAlchemy's. Raises `InvalidInput`."""
        raise InvalidInput("A batch cannot be begun in a transaction of Django's.", hint=AFTERWARDS)

    async def arun(self, work: Callable[[Connection], T]) -> T:
        """As `run`."""
        return self.run(work)

    async def aplace(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Django has no transactions for asyncio. Raises `ConfigError`."""
        raise ConfigError(
            "Django's transactions are not for asyncio, so no job can be written in one from there.",
            hint="Use dispatch, inside sync_to_async together with the transaction.",
        )


def _in_order(statement: Any, values: Row) -> list[Any]:
    """The values as the statement's marks take them."""
    return [values[name] for name in statement.positiontup]


def _connection(alias: str) -> Any:
    from django.db import connections

    if alias not in connections:
        known = ", ".join(connections)
        raise ConfigError(f"{alias!r} is no alias of a Django database; known are {known}.")
    return connections[alias]
