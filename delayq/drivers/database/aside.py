"""What is set aside for a migration: rows of a queue of its own, which no worker serves.

`delayq-aside:<lot>:<queue>` holds the rows of one lot. A row changes its queue in one statement, so it is seen by
workers or by the migration, never by both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, Table, delete, func, select, update

from delayq.drivers.broker import Waiting, WaitingPage
from delayq.drivers.database.engine import Database
from delayq.drivers.database.looking import Looking, waiting_of
from delayq.drivers.migrating.batched import unless_batched
from delayq.drivers.migrating.ends import Stays
from delayq.drivers.migrating.walk import Walk

ASIDE: Final = "delayq-aside:"


class DatabaseSource:
    """The source of a migration on the table of jobs."""

    comes_back = False

    def __init__(self, database: Database, jobs: Table, looking: Looking) -> None:
        self._database = database
        self._jobs = jobs
        self._looking = looking
        self._walks: dict[str, Walk] = {}
        self._members: dict[str, set[str]] = {}

    def queues(self) -> list[str]:
        """Those that hold rows, also where all of them are set aside."""
        return sorted({name.split(":", 2)[2] if name.startswith(ASIDE) else name for name in self._names()})

    def waiting(self, queue: str) -> int:
        """How many rows nobody holds."""
        asked = select(func.count()).where(self._jobs.c.queue == queue, self._jobs.c.reserved_at.is_(None))
        return int(self._database.read(lambda connection: connection.execute(asked).scalar_one()))

    def lots(self, queue: str) -> list[str]:
        """By the names of their queues."""
        names = (name.split(":", 2) for name in self._names() if name.startswith(ASIDE))
        return sorted(lot for _, lot, of in names if of == queue)

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """Rows that nobody holds get another queue, the first to fall due first."""
        stays_here = unless_batched(self._members.setdefault(queue, set()), stays)

        def page(cursor: str, most: int) -> WaitingPage:
            return self._database.read(lambda connection: self._looking.page(connection, queue, cursor, most))

        def move(jobs: Sequence[Waiting]) -> int:
            return self._database.write(lambda connection: self._move(connection, queue, lot, jobs))

        return self._walks.setdefault(queue, Walk()).step(page, move, count, stays_here)

    def _move(self, connection: Connection, queue: str, lot: str, jobs: Sequence[Waiting]) -> int:
        rows = self._jobs.c
        free = select(rows.id).where(
            rows.id.in_(list(map(_number, jobs))), rows.queue == queue, rows.reserved_at.is_(None)
        )
        numbers = list(connection.execute(free.order_by(rows.id).with_for_update(skip_locked=True)).scalars())
        if numbers:
            connection.execute(update(self._jobs).where(rows.id.in_(numbers)).values(queue=_name(lot, queue)))
        return len(numbers)

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """Its rows by their numbers, under the name of the queue they were taken from."""
        asked = select(self._jobs).where(self._jobs.c.queue == _name(lot, queue)).order_by(self._jobs.c.id)
        rows = self._database.read(lambda connection: connection.execute(asked).all())
        return [waiting_of(row)._replace(queue=queue) for row in rows]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Delete these rows."""
        numbers = list(map(_number, jobs))
        gone = delete(self._jobs).where(self._jobs.c.queue == _name(lot, queue), self._jobs.c.id.in_(numbers))
        if numbers:
            self._database.write(lambda connection: connection.execute(gone).rowcount)
        return ()

    def put_back(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Mapping[str, str]:
        """Their rows get their queue again, but for those whose ids were taken there meanwhile."""
        rows = self._jobs.c
        mine = rows.id.in_(list(map(_number, jobs)))
        aside = select(rows.id, rows.delayq_id).where(rows.queue == _name(lot, queue), mine).with_for_update()

        def work(connection: Connection) -> set[int]:
            of_lot = connection.execute(aside).all()
            ids = [row.delayq_id for row in of_lot if row.delayq_id is not None]
            there = select(rows.delayq_id).where(rows.queue == queue, rows.delayq_id.in_(ids))
            taken = set(connection.execute(there).scalars())
            free = [row.id for row in of_lot if row.delayq_id not in taken]
            connection.execute(update(self._jobs).where(rows.id.in_(free)).values(queue=queue))
            return {row.id for row in of_lot if row.delayq_id in taken}

        stuck = self._database.write(work)
        why = f"it is aside, and its id was taken in {queue} meanwhile"
        return {job.entry: why for job in jobs if _number(job) in stuck}

    def let_go(self, queue: str) -> None:
        """Nothing is held."""

    def staying(self, queue: str) -> str:
        """Members of batches: their batch counts them where it is."""
        members = self._members.get(queue)
        return f"{len(members)} belong to batches, which count them here" if members else ""

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _names(self) -> list[str]:
        return self._database.read(self._looking.queues)


def _number(job: Waiting) -> int:
    return int(job.entry.partition(".")[0])


def _name(lot: str, queue: str) -> str:
    return f"{ASIDE}{lot}:{queue}"
