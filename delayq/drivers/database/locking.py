"""Unique keys: rows that say which job holds which key, in the transaction of whoever takes or frees one.

A lock counts while its owner has a row in the table of jobs, or while its window lasts. So what frees it is the
settling of its owner; the row that is deleted with it only keeps the table short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from delayq.core.limiting import Unlocked
from delayq.drivers.database.tables import Tables

SWEPT_AT_ONCE: Final = 200


class Lock(NamedTuple):
    """A key as its row has it."""

    queue: str
    name: str
    owner: str
    until_ms: int | None
    most_ms: int | None
    since_ms: int


class Locking:
    """The statements of one connection's locks. `kind` is the database's."""

    def __init__(self, tables: Tables, kind: str) -> None:
        self._locks = tables.locks
        self._jobs = tables.jobs
        rows = tables.locks.c
        self._insertion = _insert_new(tables, kind)
        self._answers = kind in ("sqlite", "postgresql")
        one = (rows.queue == bindparam("of_queue"), rows.name == bindparam("of_name"))
        self._find = select(tables.locks).where(*one)
        self._change = update(tables.locks).where(*one)
        mine = (rows.queue == bindparam("of_queue"), rows.owner == bindparam("of_owner"), rows.until_ms.is_(None))
        self._free = delete(tables.locks).where(*mine)
        self._free_others = self._free.where(rows.name != bindparam("of_name"))
        self._drop = delete(tables.locks).where(*one, rows.owner == bindparam("of_owner"))

    def take(self, connection: Connection, lock: Lock, now_ms: int) -> str:
        """Let `lock.owner` have it; '' when it has it now, else the id of the job that does."""
        while not self._is_new(connection, lock):
            there = self.held(connection, lock.queue, lock.name)
            if there is None:  # its owner ended this very moment
                continue
            if self._counts(connection, there, lock.owner, now_ms):
                return there.owner
            self.give(connection, lock)
            break
        return ""

    def held(self, connection: Connection, queue: str, name: str) -> Lock | None:
        """The row of a key, locked against everybody else until this transaction ends."""
        asked = {"of_queue": queue, "of_name": name}
        row = connection.execute(self._find.with_for_update(), asked).first()
        return None if row is None else Lock(*row)

    def give(self, connection: Connection, lock: Lock) -> None:
        """Write over a row that this transaction has locked."""
        values = lock._asdict()
        asked = {"of_queue": values.pop("queue"), "of_name": values.pop("name")}
        connection.execute(self._change.values(**values), asked)

    def add(self, connection: Connection, lock: Lock) -> bool:
        """A row for a key that has none; False when it has one by now."""
        return self._is_new(connection, lock)

    def free(self, connection: Connection, owners: Iterable[tuple[str, str]], *, but: str = "") -> None:
        """What these jobs, (queue, id), hold; a window is freed by time alone. `but`: they keep this one."""
        asked = [{"of_queue": queue, "of_owner": owner} for queue, owner in sorted(set(owners))]
        if but:
            connection.execute(self._free_others, [{**one, "of_name": but} for one in asked])
        elif asked:
            connection.execute(self._free, asked)

    def drop(self, connection: Connection, queue: str, name: str, owner: str) -> Unlocked:
        """Free one key, if it is that job's."""
        asked = {"of_queue": queue, "of_name": name, "of_owner": owner}
        return Unlocked.FREED if connection.execute(self._drop, asked).rowcount else Unlocked.FREE

    def listed(
        self, connection: Connection, queue: str | None, limit: int, *, name: str | None = None
    ) -> Sequence[Any]:
        """Locks with what is known of their owners' jobs, by queue and owner; all, or those called `name`."""
        rows, jobs = self._locks.c, self._jobs.c
        both = self._locks.outerjoin(self._jobs, (jobs.queue == rows.queue) & (jobs.delayq_id == rows.owner))
        asked = select(*rows, *(column.label(f"job_{column.name}") for column in jobs)).select_from(both)
        if queue is not None:
            asked = asked.where(rows.queue == queue)
        if name is not None:
            asked = asked.where(rows.name == name)
        return connection.execute(asked.order_by(rows.queue, rows.owner, rows.name).limit(limit)).all()

    def sweep(self, connection: Connection, queue: str, now_ms: int) -> None:
        """Delete some rows that hold nothing: windows that are over, and keys of jobs that are gone.

        Looked at again once they are locked, because somebody may have taken one meanwhile.
        """
        rows, jobs = self._locks.c, self._jobs.c
        owned = exists().where(jobs.queue == rows.queue, jobs.delayq_id == rows.owner)
        over = or_(rows.until_ms <= now_ms, rows.until_ms.is_(None) & ~owned)
        some = select(rows.name).where(rows.queue == queue, over).order_by(rows.name).limit(SWEPT_AT_ONCE)
        names = connection.execute(some.with_for_update(skip_locked=True)).scalars().all()
        if names:
            connection.execute(delete(self._locks).where(rows.queue == queue, rows.name.in_(names), over))

    def _counts(self, connection: Connection, lock: Lock, asks: str, now_ms: int) -> bool:
        """Whether the lock keeps out the job that asks. A window keeps out its own owner too, who may have ended."""
        if lock.until_ms is not None:
            return lock.until_ms > now_ms
        if lock.owner == asks:
            return False
        rows = self._jobs.c
        asked = select(rows.id).where(rows.queue == lock.queue, rows.delayq_id == lock.owner)
        return connection.execute(asked).first() is not None

    def _is_new(self, connection: Connection, lock: Lock) -> bool:
        if self._answers:
            return connection.execute(self._insertion, lock._asdict()).first() is not None
        try:
            connection.execute(self._insertion, lock._asdict())
        except IntegrityError:  # that statement did nothing, and the transaction goes on
            return False
        return True


def _insert_new(tables: Tables, kind: str) -> Any:
    key = [tables.locks.c.queue, tables.locks.c.name]
    if kind == "postgresql":
        return postgresql.insert(tables.locks).on_conflict_do_nothing(index_elements=key).returning(*key)
    if kind == "sqlite":
        return sqlite.insert(tables.locks).on_conflict_do_nothing(index_elements=key).returning(*key)
    return insert(tables.locks)
