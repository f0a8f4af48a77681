"""Failed jobs, in Laravel's `failed_jobs`: written in the step that takes them out of their queue, and looked after.

`uuid` is the job's id. An id that another queue's job has failed with gets its queue behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from delayq.core.errors import BadEnvelope
from delayq.core.failure import Failure
from delayq.drivers.broker import Bury
from delayq.drivers.database import payload
from delayq.drivers.database.engine import Database
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery
from delayq.drivers.laravel.payload import label

PRUNED_AT_ONCE: Final = 1_000


class Failing:
    """Writes into the table in somebody's transaction."""

    def __init__(self, failed: Table, kind: str) -> None:
        self._failed = failed
        self._kind = kind

    def bury(self, connection: Connection, act: Bury, held: str) -> None:
        """Keep a job whose row had the payload `held`."""
        self.write(connection, act.failed, _told(held, act.envelope))

    def write(self, connection: Connection, job: FailedJob, text: str) -> None:
        """One row; that of the same job, if there is one, is replaced."""
        rows = self._failed.c
        values = {
            "connection": job.connection,
            "queue": job.queue,
            "payload": text,
            "exception": exception_of(job.failure),
            "failed_at": datetime.fromtimestamp(job.failed_ms / 1000, UTC).replace(tzinfo=None, microsecond=0),
        }
        uuid = job.id
        there = connection.execute(select(rows.queue).where(rows.uuid == uuid)).first()
        if there is not None and there.queue != job.queue:
            uuid = f"{job.id}@{job.queue}"[:255]
            there = connection.execute(select(rows.queue).where(rows.uuid == uuid)).first()
        if there is None:
            connection.execute(insert(self._failed).values(uuid=uuid, **values))
        else:
            connection.execute(update(self._failed).where(rows.uuid == uuid).values(**values))


class FailedJobs:
    """A `FailedStore` on the table."""

    def __init__(self, database: Database, failed: Table) -> None:
        self._database = database
        self._failed = failed
        self._writing = Failing(failed, database.kind)

    def add(self, job: FailedJob) -> None:
        """Keep a job."""
        text = job.payload.decode("utf-8", "surrogateescape")
        self._database.write(lambda connection: self._writing.write(connection, job, text))

    def get(self, job_id: str) -> FailedJob | None:
        """The job of that id."""
        asked = select(self._failed).where(self._failed.c.uuid == job_id)
        row = self._database.read(lambda connection: connection.execute(asked).first())
        return None if row is None else failed_job(row)

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """Up to `count` jobs, in the order in which they failed."""
        last = int(cursor) if cursor else 0
        found: list[FailedJob] = []
        while len(found) < count:
            rows = self._rows(query, last, count)
            for row in rows:
                last = row.id
                job = failed_job(row)
                if query.has(job):
                    found.append(job)
                if len(found) == count:
                    return FailedPage(tuple(found), str(last))
            if len(rows) < count:
                return FailedPage(tuple(found), "")
        return FailedPage(tuple(found), str(last))

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """How many are meant."""
        if query == EVERYTHING:
            asked = select(func.count()).select_from(self._failed)
            return self._database.read(lambda connection: int(connection.execute(asked).scalar_one()))
        return sum(1 for _ in self._all(query))

    def forget(self, job_ids: Sequence[str]) -> int:
        """Remove these; how many were there."""
        gone = 0
        for start in range(0, len(job_ids), PRUNED_AT_ONCE):
            some = list(job_ids[start : start + PRUNED_AT_ONCE])
            gone += self._removed(delete(self._failed).where(self._failed.c.uuid.in_(some)))
        return gone

    def prune(self, before_ms: int) -> int:
        """Remove what failed before that time, in steps; how many."""
        rows = self._failed.c
        before = datetime.fromtimestamp(before_ms / 1000, UTC).replace(tzinfo=None)
        total = 0
        while True:
            asked = select(rows.id).where(rows.failed_at < before).order_by(rows.id).limit(PRUNED_AT_ONCE)
            numbers = self._database.read(partial(_numbers, asked))
            if not numbers:
                return total
            total += self._removed(delete(self._failed).where(rows.id.in_(numbers)))

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    def _removed(self, statement: Any) -> int:
        return self._database.write(lambda connection: int(connection.execute(statement).rowcount))

    def _all(self, query: FailedQuery) -> Iterator[FailedJob]:
        cursor = ""
        while True:
            page = self.page(query, cursor=cursor, count=500)
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def _rows(self, query: FailedQuery, after: int, count: int) -> Sequence[Any]:
        rows = self._failed.c
        asked = select(self._failed).where(rows.id > after).order_by(rows.id).limit(count)
        if query.queue is not None:
            asked = asked.where(rows.queue == query.queue)
        if query.connection is not None:
            asked = asked.where(rows.connection == query.connection)
        return self._database.read(lambda connection: connection.execute(asked).all())


def failed_job(row: Any) -> FailedJob:
    """A row as a failed job; Laravel may have written it."""
    raw = row.payload.encode("utf-8", "surrogateescape")
    failed_ms = int(row.failed_at.replace(tzinfo=UTC).timestamp() * 1000)
    return FailedJob(
        id=row.uuid,
        connection=row.connection,
        queue=row.queue,
        name=label(raw)[1],
        payload=raw,
        failure=failure_of(row.exception, failed_ms),
        failed_ms=failed_ms,
    )


def exception_of(failure: Failure) -> str:
    """What the column holds: `Type: message`, and where it was raised."""
    return f"{failure.type}: {failure.message}\n{failure.traceback}".rstrip()


def failure_of(text: str, failed_ms: int) -> Failure:
    """And back; of PHP's text the first line is the message."""
    first, _, rest = text.partition("\n")
    kind, colon, message = first.partition(": ")
    if not colon or " " in kind:
        kind, message = "Exception", first
    return Failure(type=kind, message=message, traceback=rest, at_ms=failed_ms)


def _numbers(asked: Any, connection: Connection) -> list[int]:
    return list(connection.execute(asked).scalars())


def _told(held: str, envelope: bytes) -> str:
    """The payload with what has changed; as it was when its job could not be read."""
    try:
        return payload.written(envelope)
    except BadEnvelope:
        return held
