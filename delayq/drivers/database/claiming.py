"""Reserves jobs that are due, and takes back what vanished workers hold.

    reserve     rows that are due -> held, in one statement where the database can answer with what it changed
    reclaim     held by delayq and past its lease -> due, one recovery; held by Laravel and past retry_after -> due,
                with the attempt that Laravel has counted

Rows that somebody else is reserving are skipped, not waited for. SQLite has one writer at a time, which is as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, case, func, literal, or_, select, update

from delayq.drivers.database.clock import Clock, database_clock, now_of
from delayq.drivers.database.due import is_due
from delayq.drivers.database.tables import MOST_ATTEMPTS

OBJECT: Final = "%CallQueuedHandler@call%"
"""What the payload of a PHP object holds, which only PHP can run."""


class Lease(NamedTuple):
    """How long delayq holds a job that nobody renews, and how long Laravel may."""

    lease_ms: int
    retry_after_s: int


class Claiming:
    """The statements of one table. `objects`: whether jobs that are PHP objects are taken too."""

    def __init__(self, jobs: Table, kind: str, lease: Lease, *, objects: bool, clock: Clock = database_clock) -> None:
        self._jobs = jobs
        self._lease = lease
        self._objects = objects
        self._clock = clock
        self._answers = kind in ("sqlite", "postgresql")
        self._joins = kind == "postgresql"
        now = now_of(clock)
        self._take = self._take_statement(now)
        self._look = self._looked(now)
        self._mark = self._marked(now)
        self._back = self._back_statement(now)
        self._lost = self._lost_statement(now)

    def reserve(self, connection: Connection, queue: str, count: int, token: str) -> list[Any]:
        """Up to `count` rows, now held under `token`, in their order; each has `now_ms` too."""
        asked = {"of_queue": queue, "most": count, "new_token": token}
        if self._answers:
            rows = connection.execute(self._take, asked).all()
            return sorted(rows, key=lambda row: (row.available_at, row.id))
        found = connection.execute(self._look, asked).all()
        if found:
            numbers = [row.id for row in found]
            connection.execute(self._mark, {"numbers": numbers, "new_token": token})
        return list(found)

    def reclaim(self, connection: Connection, queue: str, count: int) -> int:
        """Take back up to `count`; how many."""
        lost = connection.execute(self._lost, {"of_queue": queue, "most": count}).scalars().all()
        if lost:
            connection.execute(self._back, {"numbers": list(lost)})
        return len(lost)

    # -- statements --------------------------------------------------------------------------------------------------

    def _due(self, now: ColumnElement[int]) -> Any:
        rows = self._jobs.c
        wanted = [rows.queue == bindparam("of_queue"), rows.reserved_at.is_(None), *is_due(self._jobs, now)]
        if not self._objects:
            wanted.append(or_(rows.delayq_id.is_not(None), rows.payload.not_like(literal(OBJECT))))
        found = select(rows.id).where(*wanted).order_by(rows.available_at, rows.id).limit(bindparam("most"))
        return found.with_for_update(skip_locked=True)

    def _take_statement(self, now: ColumnElement[int]) -> Any:
        rows = self._jobs.c
        changed = update(self._jobs).ordered_values(*self._held(now).items())
        if self._joins:
            picked = self._due(now).cte("picked")  # joined: a subselect with a limit may be run more than once
            changed = changed.where(rows.id == picked.c.id)
        else:
            changed = changed.where(rows.id.in_(self._due(now)))
        return changed.returning(*self._told(rows.attempts - 1, now))

    def _looked(self, now: ColumnElement[int]) -> Any:
        """As `_due`, with all that is told; for databases that answer a change with a number only."""
        return self._due(now).with_only_columns(*self._told(self._jobs.c.attempts, now))

    def _marked(self, now: ColumnElement[int]) -> Any:
        return update(self._jobs).where(self._numbered()).ordered_values(*self._held(now).items())

    def _told(self, attempts: ColumnElement[int], now: ColumnElement[int]) -> Sequence[Any]:
        rows = self._jobs.c
        return (
            rows.id,
            rows.queue,
            rows.payload,
            attempts.label("attempts_made"),
            rows.available_at,
            rows.delayq_shift_ms,
            rows.created_at,
            rows.delayq_recoveries,
            now.label("now_ms"),
        )

    def _held(self, now: ColumnElement[int]) -> dict[str, Any]:
        """What is set, in this order: MySQL goes from left to right, and each column sees what was set before it."""
        rows = self._jobs.c
        counted = case((rows.attempts < MOST_ATTEMPTS, rows.attempts + 1), else_=rows.attempts)
        return {
            "delayq_held": counted,
            "attempts": counted,
            "reserved_at": now // 1000,
            "delayq_token": bindparam("new_token"),
            "delayq_until_ms": now + self._lease.lease_ms,
        }

    def _lost_statement(self, now: ColumnElement[int]) -> Any:
        rows = self._jobs.c
        ours = func.coalesce(rows.delayq_held, -1) == rows.attempts
        over = or_(
            and_(ours, rows.delayq_until_ms <= now),
            and_(~ours, rows.reserved_at <= now // 1000 - self._lease.retry_after_s),
        )
        found = select(rows.id).where(rows.queue == bindparam("of_queue"), rows.reserved_at.is_not(None), over)
        return found.order_by(rows.reserved_at).limit(bindparam("most")).with_for_update(skip_locked=True)

    def _back_statement(self, now: ColumnElement[int]) -> Any:
        return update(self._jobs).where(self._numbered()).ordered_values(*vanished(self._jobs, now).items())

    def _numbered(self) -> ColumnElement[bool]:
        return self._jobs.c.id.in_(bindparam("numbers", expanding=True))


def free(attempts: Any) -> dict[str, Any]:
    """What the columns of a job say that nobody holds."""
    return {
        "attempts": attempts,
        "reserved_at": None,
        "delayq_token": None,
        "delayq_held": None,
        "delayq_until_ms": None,
    }


def vanished(jobs: Table, now: ColumnElement[int]) -> dict[str, Any]:
    """Who held it is gone: it joins the tail. Ours cost a recovery and no attempt; Laravel has counted its own.

    The order counts on MySQL, where each column sees what was set before it.
    """
    rows = jobs.c
    ours = func.coalesce(rows.delayq_held, -1) == rows.attempts
    return {
        "delayq_recoveries": case((ours, rows.delayq_recoveries + 1), else_=rows.delayq_recoveries),
        "available_at": now // 1000,
        "delayq_shift_ms": now % 1000,
        **free(case((ours, rows.attempts - 1), else_=rows.attempts)),
    }
