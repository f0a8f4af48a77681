"""What is set aside for a migration: rows of a queue of its own, which no worker serves.

`delayq-aside:<lot>:<queue>` holds the rows of one lot. A row changes its queue in one statement, so it is seen by
workers or by the migration, never by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, select, update

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT
from delayq.core.errors import BadEnvelope
from delayq.drivers.broker import Waiting
from delayq.drivers.database.engine import Database
from delayq.drivers.database.looking import Looking, waiting_of

ASIDE: Final = "delayq-aside:"
MEMBER: Final = '%"batch":%'
"""What the payload of a member of a batch holds, and perhaps the data of a job that is none."""


class DatabaseSource:
    """The source of a migration on the table of jobs."""

    def __init__(self, database: Database, jobs: Table, looking: Looking) -> None:
        self._database = database
        self._jobs = jobs
        self._looking = looking

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

    def set_aside(self, queue: str, lot: str, count: int) -> int:
        """Some rows that nobody holds, the first to fall due first, get another queue."""
        rows = self._jobs.c
        free = select(rows.id).where(rows.queue == queue, rows.reserved_at.is_(None))
        plain = free.where(rows.payload.not_like(MEMBER)).order_by(rows.available_at, rows.id).limit(count)

        def work(connection: Connection) -> int:
            numbers = list(connection.execute(plain.with_for_update(skip_locked=True)).scalars())
            if not numbers:
                others = [number for number, member in self._suspects(connection, queue) if not member][:count]
                locked = free.where(rows.id.in_(others)).with_for_update(skip_locked=True)
                numbers = list(connection.execute(locked).scalars())
            if numbers:
                connection.execute(update(self._jobs).where(rows.id.in_(numbers)).values(queue=_name(lot, queue)))
            return len(numbers)

        return self._database.write(work)

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """Its rows by their numbers, under the name of the queue they were taken from."""
        asked = select(self._jobs).where(self._jobs.c.queue == _name(lot, queue)).order_by(self._jobs.c.id)
        rows = self._database.read(lambda connection: connection.execute(asked).all())
        return [waiting_of(row)._replace(queue=queue) for row in rows]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Delete these rows."""
        numbers = [int(job.entry.partition(".")[0]) for job in jobs]
        gone = delete(self._jobs).where(self._jobs.c.queue == _name(lot, queue), self._jobs.c.id.in_(numbers))
        self._database.write(lambda connection: connection.execute(gone).rowcount)
        return ()

    def put_back(self, queue: str, lot: str) -> int:
        """Its rows get their queue again, but for those whose ids were taken there meanwhile."""
        rows = self._jobs.c
        aside = select(rows.id, rows.delayq_id).where(rows.queue == _name(lot, queue)).with_for_update()

        def work(connection: Connection) -> int:
            of_lot = connection.execute(aside).all()
            ids = [row.delayq_id for row in of_lot if row.delayq_id is not None]
            there = select(rows.delayq_id).where(rows.queue == queue, rows.delayq_id.in_(ids))
            taken = set(connection.execute(there).scalars())
            free = [row.id for row in of_lot if row.delayq_id not in taken]
            connection.execute(update(self._jobs).where(rows.id.in_(free)).values(queue=queue))
            return len(free)

        return self._database.write(work)

    def staying(self, queue: str) -> str:
        """Members of batches: their batch counts them where it is."""
        suspects = self._database.read(lambda connection: self._suspects(connection, queue))
        stayed = sum(1 for _, member in suspects if member)
        return f"{stayed} belong to batches, which count them here" if stayed else ""

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _suspects(self, connection: Connection, queue: str) -> list[tuple[int, bool]]:
        """Rows that wait and may be members of batches, each with whether it is one."""
        rows = self._jobs.c
        asked = select(self._jobs).where(rows.queue == queue, rows.reserved_at.is_(None), rows.payload.like(MEMBER))
        return [(row.id, _in_a_batch(row)) for row in connection.execute(asked.order_by(rows.available_at, rows.id))]

    def _names(self) -> list[str]:
        return self._database.read(self._looking.queues)


def _in_a_batch(row: Any) -> bool:
    try:
        return envelopes.decode(waiting_of(row).envelope).batch is not ABSENT
    except BadEnvelope:
        return False


def _name(lot: str, queue: str) -> str:
    return f"{ASIDE}{lot}:{queue}"
