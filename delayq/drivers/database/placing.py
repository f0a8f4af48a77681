"""Puts jobs into the table, and what happens when an id is taken. Those with a unique key: `keyed_placing.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, insert, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from delayq.core.names import made_here
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database import due, payload

Row = dict[str, Any]
GivenWay = Callable[[Connection, Any, str], None]

WRITTEN: Final = (
    "queue",
    "payload",
    "attempts",
    "reserved_at",
    "available_at",
    "delayq_shift_ms",
    "created_at",
    "delayq_id",
)
"""The columns of a new row."""


def row_of(item: Item, now_ms: int) -> Row:
    """The row of a job. Raises `InvalidInput` for a time no row can hold, `BadEnvelope`."""
    return {
        "queue": item.queue,
        "payload": payload.written(item.envelope),
        "attempts": 0,
        "reserved_at": None,
        **due.columns_of(now_ms + item.delay_ms, now_ms),
        "created_at": now_ms // 1000,
        "delayq_id": item.id,
    }


class Placing:
    """Writes rows in somebody's transaction. `kind` is the database's.

    `given_way` hears of a row before another payload is written over it, with the unique key that its job keeps.
    """

    def __init__(self, jobs: Table, kind: str, given_way: GivenWay) -> None:
        self._jobs = jobs
        self._given_way = given_way
        self._kind = kind
        self._returns = kind in ("sqlite", "postgresql")
        self.insertion: Any = _insert_new(jobs, kind)
        self._plain = insert(jobs)
        ours = (jobs.c.queue == bindparam("of_queue"), jobs.c.delayq_id == bindparam("of_id"))
        self.search = select(jobs).where(*ours)
        self._change = update(jobs).where(jobs.c.id == bindparam("number"))

    def place(
        self, connection: Connection, items: Sequence[Item], on_conflict: OnConflict, now_ms: int
    ) -> list[JobRef]:
        """Write them; an answer for each, in order."""
        rows = [row_of(item, now_ms) for item in items]
        if on_conflict in (OnConflict.REPLACE, OnConflict.POSTPONE):
            return [
                self._placed_over(connection, item, row, on_conflict) for item, row in zip(items, rows, strict=True)
            ]
        created = self.inserted(connection, rows, exactly=on_conflict is OnConflict.ERROR)
        return [
            item.created() if _first(created, item) else self._kept(connection, item, on_conflict) for item in items
        ]

    def inserted(self, connection: Connection, rows: Sequence[Row], *, exactly: bool = False) -> set[tuple[str, str]]:
        """Which of them are new. `exactly`: an id that delayq made may be taken by another job, as any other."""
        if self._returns:
            done = connection.execute(self.insertion, list(rows))
            return {(row.queue, row.delayq_id) for row in done}
        fresh = [row for row in rows if not exactly and made_here(row["delayq_id"])]
        if fresh:
            connection.execute(self.insertion, fresh)  # one that is there already is the same job, sent again
        named = (row for row in rows if exactly or not made_here(row["delayq_id"]))
        return {_key(row) for row in fresh} | {_key(row) for row in named if self._is_new(connection, row)}

    def _is_new(self, connection: Connection, row: Row) -> bool:
        """MySQL says of single rows only whether they were new."""
        try:
            connection.execute(self._plain, row)
        except IntegrityError:  # that statement did nothing, and the transaction goes on
            return False
        return True

    def _kept(self, connection: Connection, item: Item, on_conflict: OnConflict) -> JobRef:
        """The id is taken."""
        answer = Answer.CONFLICT if on_conflict is OnConflict.ERROR else Answer.KEPT
        found = self.there(connection, item)
        if found is None:  # it ended meanwhile; what was asked for is done
            return JobRef(item.id, item.queue, State.ABSENT, None, answer, item.name)
        state, due_ms = state_of(found, item.due_ms - item.delay_ms)
        return JobRef(item.id, item.queue, state, due_ms, answer, item.name)

    def there(self, connection: Connection, item: Item) -> Any | None:
        """The row that has the id of this job, if one has."""
        return connection.execute(self.search, {"of_queue": item.queue, "of_id": item.id}).first()

    def _placed_over(self, connection: Connection, item: Item, row: Row, on_conflict: OnConflict) -> JobRef:
        """Replace or postpone the job that has the id, if it waits."""
        if self.inserted(connection, [row]):
            return item.created()
        asked = {"of_queue": item.queue, "of_id": item.id}
        found = connection.execute(self.search.with_for_update(), asked).first()
        if found is None:
            return self._placed_over(connection, item, row, on_conflict)
        if found.reserved_at is not None:
            return JobRef(item.id, item.queue, State.RESERVED, None, Answer.RUNNING, item.name)
        changes = {name: row[name] for name in ("available_at", "delayq_shift_ms")}
        if on_conflict is OnConflict.REPLACE:
            self._given_way(connection, found, item.lock)
            changes |= {"payload": row["payload"], "attempts": 0, "delayq_recoveries": 0}
        connection.execute(self._change.values(**changes), {"number": found.id})
        done = Answer.REPLACED if on_conflict is OnConflict.REPLACE else Answer.POSTPONED
        created = item.created()
        return JobRef(item.id, item.queue, created.state, created.due_ms, done, item.name)


def state_of(row: Any, now_ms: int) -> tuple[State, int | None]:
    """Where a row's job is, and when it is due if it waits for that."""
    if row.reserved_at is not None:
        return State.RESERVED, None
    due_ms = due.due_of(row)
    return (State.SCHEDULED, due_ms) if due_ms > now_ms else (State.READY, None)


def _first(created: set[tuple[str, str]], item: Item) -> bool:
    """Whether this is the one that was created: of two with one id, the earlier."""
    key = (item.queue, item.id)
    if key not in created:
        return False
    created.remove(key)
    return True


def _key(row: Row) -> tuple[str, str]:
    return row["queue"], row["delayq_id"]


def _insert_new(jobs: Table, kind: str) -> Any:
    """Insert, unless the id is taken in its queue."""
    taken = [jobs.c.queue, jobs.c.delayq_id]
    if kind == "postgresql":
        return postgresql.insert(jobs).on_conflict_do_nothing(index_elements=taken).returning(*taken)
    if kind == "sqlite":
        return sqlite.insert(jobs).on_conflict_do_nothing(index_elements=taken).returning(*taken)
    return mysql.insert(jobs).on_duplicate_key_update(id=jobs.c.id)
