"""Shows what waits, finds a job by its id, removes what waits and gives it another time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, case, delete, func, not_, or_, select, update

from delayq.core.states import Answer
from delayq.drivers.broker import Depth, Waiting, WaitingPage
from delayq.drivers.database import due, payload
from delayq.drivers.database.clock import Clock, database_clock, now_of
from delayq.drivers.database.tables import Tables
from delayq.drivers.laravel.payload import DIGEST

Removed = Callable[[Connection, Sequence[Any]], None]

_REMOVED_AT_ONCE: Final = 500
_LINKED: Final = ('%"unique":%', '%"batch":%')
"""What the payload holds of a job that has a key, or belongs to a batch. So may its data, which does no harm."""
_CANDIDATES: Final = 50
"""Payloads of Laravel's that hold a text, looked through for the one whose id it is."""
_LIKE: Final = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


class Looking:
    """Questions about one connection's tables, in a transaction of somebody else.

    `removed` hears of rows that were taken out before they ran, if they have a key or belong to a batch.
    """

    def __init__(self, tables: Tables, removed: Removed, clock: Clock = database_clock) -> None:
        self._jobs = tables.jobs
        self._removed = removed
        self._failed = tables.failed
        self._clock = clock

    def queues(self, connection: Connection) -> list[str]:
        """All queues that hold something: from each to the next, because a DISTINCT would read every job."""
        names: list[str] = []
        column = self._jobs.c.queue
        asked = select(func.min(column))
        while (name := connection.execute(asked).scalar()) is not None:
            names.append(name)
            asked = select(func.min(column)).where(column > name)
        return names

    def next_due(self, connection: Connection, queues: Sequence[str]) -> int | None:
        """When the next job of these queues falls due that is not held, epoch ms; None = none waits."""
        column = due.due_column(self._jobs)
        times = [
            connection.execute(
                self._waiting(queue)
                .with_only_columns(column)
                .order_by(self._jobs.c.available_at, self._jobs.c.id)
                .limit(1)
            ).scalar()
            for queue in queues
        ]
        return min((int(time) for time in times if time is not None), default=None)

    def depth(self, connection: Connection, queue: str) -> Depth:
        """How long a queue is."""
        rows, now = self._jobs.c, now_of(self._clock)
        free = rows.reserved_at.is_(None)
        is_due = and_(free, due.due_column(self._jobs) <= now)
        ready, reserved = func.sum(case((is_due, 1), else_=0)), func.sum(case((free, 0), else_=1))
        oldest = func.min(case((is_due, due.due_column(self._jobs))))
        asked = select(func.count(), ready, reserved, oldest).where(rows.queue == queue)
        every, waits, held, since = connection.execute(asked).one()
        waits, held = int(waits or 0), int(held or 0)
        return Depth(waits, int(every) - waits - held, held, None if since is None else int(since))

    def page(self, connection: Connection, queue: str, cursor: str, count: int) -> WaitingPage:
        """Jobs that wait, in the order in which they fall due."""
        rows = self._jobs.c
        asked = self._waiting(queue).order_by(rows.available_at, rows.id).limit(count)
        if cursor:
            at, number = (int(part) for part in cursor.split("."))
            asked = asked.where(or_(rows.available_at > at, and_(rows.available_at == at, rows.id > number)))
        found = connection.execute(asked).all()
        last = f"{found[-1].available_at}.{found[-1].id}" if len(found) == count else ""
        return WaitingPage(tuple(map(waiting_of, found)), last)

    def find(self, connection: Connection, queue: str, job_id: str) -> Any | None:
        """The row of a job, held or not; one that Laravel wrote is searched for in the payloads.

        An id that was made of a payload stands in none: it is looked for among those that name no other.
        """
        rows = self._jobs.c
        asked = select(self._jobs).where(rows.queue == queue).with_for_update()
        found = connection.execute(asked.where(rows.delayq_id == job_id)).first()
        if found is not None or '"' in job_id:
            return found
        held = '"uuid":' if job_id.startswith(DIGEST) else f'"{job_id.translate(_LIKE)}"'
        holds = rows.payload.like(f"%{held}%", escape="\\")
        holds = not_(holds) if job_id.startswith(DIGEST) else holds
        named = connection.execute(asked.where(rows.delayq_id.is_(None), holds).limit(_CANDIDATES)).all()
        return next((row for row in named if waiting_of(row).id == job_id), None)

    def remove(self, connection: Connection, jobs: Sequence[Waiting]) -> list[bool]:
        """Remove those that still wait as they were shown."""
        rows = self._jobs.c
        gone: set[str] = set()
        for start in range(0, len(jobs), _REMOVED_AT_ONCE):
            shown = {job.entry for job in jobs[start : start + _REMOVED_AT_ONCE]}
            numbers = sorted(int(entry.partition(".")[0]) for entry in shown)
            asked = select(self._jobs).where(rows.id.in_(numbers), rows.reserved_at.is_(None)).order_by(rows.id)
            there = {entry_of(row): row.id for row in connection.execute(asked.with_for_update(skip_locked=True))}
            same = shown & there.keys()
            if same:
                self._delete(connection, [there[entry] for entry in same])
            gone |= same
        return [job.entry in gone for job in jobs]

    def cancel(self, connection: Connection, queue: str, job_id: str) -> Answer:
        """Remove it if it waits."""
        row = self.find(connection, queue, job_id)
        if (refused := self._refused(connection, row, queue, job_id)) is not None:
            return refused
        assert row is not None
        self._delete(connection, [row.id])
        return Answer.CANCELLED

    def reschedule(self, connection: Connection, queue: str, job_id: str, due_ms: int, now_ms: int) -> Answer:
        """Give it another time if it waits. Raises `InvalidInput` for one no row can hold."""
        times = due.columns_of(max(due_ms, now_ms), now_ms)
        row = self.find(connection, queue, job_id)
        if (refused := self._refused(connection, row, queue, job_id)) is not None:
            return refused
        assert row is not None
        connection.execute(update(self._jobs).where(self._jobs.c.id == row.id).values(**times))
        return Answer.RESCHEDULED

    def clear(self, connection: Connection, queue: str) -> int:
        """Remove some of what waits; how many."""
        rows = self._jobs.c
        some = self._waiting(queue).with_only_columns(rows.id).order_by(rows.id).limit(_REMOVED_AT_ONCE)
        numbers = connection.execute(some.with_for_update(skip_locked=True)).scalars().all()
        if not numbers:
            return 0
        self._delete(connection, numbers)
        return len(numbers)

    def _delete(self, connection: Connection, numbers: Sequence[int]) -> None:
        rows = self._jobs.c
        linked = select(self._jobs).where(rows.id.in_(numbers), or_(*(rows.payload.like(word) for word in _LINKED)))
        concerned = connection.execute(linked).all()
        connection.execute(delete(self._jobs).where(rows.id.in_(numbers)))
        if concerned:
            self._removed(connection, concerned)

    def _waiting(self, queue: str) -> Any:
        rows = self._jobs.c
        return select(self._jobs).where(rows.queue == queue, rows.reserved_at.is_(None))

    def _refused(self, connection: Connection, row: Any | None, queue: str, job_id: str) -> Answer | None:
        """Why a job cannot be touched; None when it waits."""
        if row is not None:
            return None if row.reserved_at is None else Answer.RUNNING
        rows = self._failed.c
        asked = select(rows.id).where(rows.uuid.in_((job_id, f"{job_id}@{queue}"[:255])), rows.queue == queue)
        return Answer.UNKNOWN if connection.execute(asked).first() is None else Answer.FAILED


def waiting_of(row: Any) -> Waiting:
    """A row that waits. What is no job is shown with its bytes."""
    found = payload.read_any(row.payload, queue=row.queue, attempts=row.attempts)
    return Waiting(found.id, row.queue, entry_of(row), found.envelope, due.due_of(row), found.unreadable)


def entry_of(row: Any) -> str:
    """What changes with every change of a row that waits."""
    digest = zlib.crc32(row.payload.encode("utf-8", "surrogateescape"))
    return f"{row.id}.{row.available_at}.{row.delayq_shift_ms}.{row.attempts}.{row.delayq_recoveries}.{digest:x}"
