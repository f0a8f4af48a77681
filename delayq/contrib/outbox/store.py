"""The table of an outbox, from the relay's side. Each step is one transaction, and a relay may die between any two.

claim     rows -> batches      decided and committed before anything is sent
take      one batch            where rows can be locked, its first row is, until the batch is settled or the relay
                               is gone; so another relay takes it over at once, and no two send it side by side
(sent)                         under the batch's token: sent again, it makes no job again
settle    rows deleted, or set aside with the reason
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, delete, false, func, literal, not_, or_, select, update

from delayq.contrib.outbox.database import Database
from delayq.contrib.outbox.judging import Known, Planned, plan
from delayq.core.names import new_id
from delayq.drivers.outbox.row import TABLE
from delayq.drivers.outbox.table import now_ms, outbox_table

AT_ONCE: Final = 1_000
"""Rows that are looked at together."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are sent in one call, in order. `age_ms`: since it was claimed."""

    token: str
    connection: str
    queue: str
    on_conflict: str
    rows: Sequence[Any]
    age_ms: int


class Claimed(NamedTuple):
    """How many rows were looked at, and those that were set aside: the job's name and id, and why."""

    rows: int
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind the relay is: rows that wait to be sent, age of the oldest, and rows that were set aside."""

    waiting: int
    oldest_ms: int
    refused: int


Send = Callable[[Batch], Mapping[int, str]]
"""Sends a batch; answers with the rows that were refused, by number, and why. What it raises leaves all as it is."""


class OutboxStore:
    """One outbox. All methods raise `BackendError`; `BackendUnavailable` when the database is away."""

    def __init__(self, database: Database, table: str = TABLE) -> None:
        self.database = database
        self._table = outbox_table(name=table)

    def claim(self, known: Known) -> Claimed:
        """Make batches of the oldest rows that have none, and set aside those that cannot be sent."""
        rows = self._table.c
        fresh = (
            select(self._table).where(rows.batch.is_(None), rows.refused.is_(None)).order_by(rows.seq).limit(AT_ONCE)
        )
        with self.database.read() as connection:
            if connection.execute(fresh.with_only_columns(rows.seq).limit(1)).first() is None:
                return Claimed(0, {})
        with self.database.begin() as connection:
            found = connection.execute(fresh.with_for_update(skip_locked=True)).all()
            batches, refused = plan(found, known)
            for batch in batches:
                self._write_down(connection, batch)
            self._set_aside(connection, refused)
        names = {row.seq: f"{row.name} {row.id}" for row in found if row.seq in refused}
        return Claimed(len(found), {names[number]: why for number, why in refused.items()})

    def take(self, send: Send, skip: Collection[tuple[str, str]]) -> Batch | None:
        """Send the oldest batch nobody else is sending, and settle it; None = there is none.

        `skip` are connections and their queues that are not asked for now.
        """
        with ExitStack() as stack:
            locks = self.database.locks_rows
            connection = stack.enter_context(self.database.begin() if locks else self.database.read())
            batch = self._read(connection, skip)
            if batch is None:
                return None
            if not locks:
                stack.close()  # a lock on the whole database would keep its writers out while Redis is asked
            refused = send(batch)
            if not locks:
                connection = stack.enter_context(self.database.begin())
            self._set_aside(connection, refused)
            connection.execute(delete(self._table).where(self._table.c.batch == batch.token))
        return batch

    def lag(self) -> Lag:
        """How far behind the relay is."""
        rows = self._table.c
        age = now_ms() - func.min(case((rows.refused.is_(None), rows.written_ms)))
        refused = func.count(rows.refused)
        with self.database.read() as connection:
            total, aside, oldest = connection.execute(select(func.count(), refused, age).select_from(self._table)).one()
        return Lag(total - aside, max(0, oldest or 0), aside)

    def refused(self, limit: int) -> list[Any]:
        """The oldest rows that were set aside, with the reason in `refused`; `age_ms` is since their writing."""
        rows = self._table.c
        asked = select(self._table, (now_ms() - rows.written_ms).label("age_ms")).where(rows.refused.is_not(None))
        with self.database.read() as connection:
            return list(connection.execute(asked.order_by(rows.seq).limit(limit)))

    def retry(self, numbers: Collection[int] | None) -> int:
        """Let rows that were set aside be looked at again, all without `numbers`; how many."""
        with self.database.begin() as connection:
            return connection.execute(update(self._table).where(self._aside(numbers)).values(refused=None)).rowcount

    def forget(self, numbers: Collection[int] | None) -> int:
        """Delete rows that were set aside, all without `numbers`; how many."""
        with self.database.begin() as connection:
            return connection.execute(delete(self._table).where(self._aside(numbers))).rowcount

    def _aside(self, numbers: Collection[int] | None) -> ColumnElement[bool]:
        rows = self._table.c
        aside = rows.refused.is_not(None)
        return aside if numbers is None else and_(aside, rows.seq.in_(list(numbers)))

    def _read(self, connection: Connection, skip: Collection[tuple[str, str]]) -> Batch | None:
        rows = self._table.c
        skipped = (and_(rows.connection == name, rows.queue == queue) for name, queue in skip)
        heads = select(rows.batch).where(rows.leads, not_(or_(false(), *skipped)))
        head = connection.execute(heads.order_by(rows.seq).limit(1).with_for_update(skip_locked=True)).scalar()
        if head is None:
            return None
        age, claimed = (
            (now_ms() - rows.written_ms).label("age_ms"),
            (now_ms() - rows.claimed_ms).label("claimed_age_ms"),
        )
        found = connection.execute(select(self._table, age, claimed).where(rows.batch == head).order_by(rows.seq)).all()
        first = found[0]
        return Batch(head, first.connection, first.queue, first.on_conflict, found, first.claimed_age_ms)

    def _write_down(self, connection: Connection, batch: Planned) -> None:
        rows = self._table.c
        values = {
            "batch": new_id(),
            "leads": case((rows.seq == batch.numbers[0], literal(True)), else_=literal(False)),
            "claimed_ms": now_ms(),
        }
        connection.execute(update(self._table).where(rows.seq.in_(batch.numbers)).values(values))
        for number, envelope in batch.rewritten.items():
            changed = {"queue": batch.queue, "envelope": envelope}
            connection.execute(update(self._table).where(rows.seq == number).values(changed))

    def _set_aside(self, connection: Connection, refused: Mapping[int, str]) -> None:
        for number, reason in refused.items():
            values = {"refused": reason, "batch": None, "leads": False, "claimed_ms": None}
            connection.execute(update(self._table).where(self._table.c.seq == number).values(values))
