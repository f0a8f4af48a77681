"""The store of failed jobs on Laravel's table `failed_jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec import structs
from sqlalchemy import ColumnElement, Connection, Select, Table, and_, delete, func, or_, select

from delayq.core.failure import Failure
from delayq.core.names import new_id
from delayq.drivers.database.clock import epoch_ms
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failing import Failing, failed_job, failed_rows, is_ours, remove_rows
from delayq.drivers.database.schema import refuse_lacking
from delayq.drivers.database.tables import FailedAlone, about_of
from delayq.drivers.failed.records import START, Mark, mark_of
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery

AT_ONCE: Final = 500


class DatabaseFailedStore:
    """A `FailedStore`. Jobs that PHP failed are among them.

    `connection` is what delayq calls it, `laravel` what Laravel does: that name is written, so that `queue:retry` finds
    the connection, and PHP's failed jobs of that name are ours too.
    """

    def __init__(self, database: Database, failed: Table, *, connection: str = "", laravel: str = "") -> None:
        self._database = database
        self._failed = failed
        self._connection = connection
        self._laravel = laravel
        self._writing = Failing(failed, laravel)
        self._about = about_of(failed)
        self._rows_asked = failed_rows(failed)
        self._at: ColumnElement[int] = func.coalesce(self._about.c.failed_ms, epoch_ms(failed.c.failed_at))

    def ready(self) -> None:
        """Look at the table, and write a row that is undone: this user may do so, and the place is not read-only."""
        refuse_lacking(self._database, FailedAlone(self._failed))
        probe = FailedJob(
            id=new_id(), connection="", queue="", name="", payload=b"{}", failure=Failure("", ""), failed_ms=1_000
        )
        self._database.tried(lambda connection: self._writing.write(connection, probe))

    def queues(self, connection: str) -> list[str]:
        """The queues that failed jobs of that connection came from."""
        rows = self._failed.c.queue
        meant = self._meant(FailedQuery(connection=connection))
        asked = self._rows_asked.with_only_columns(rows).where(*meant).distinct().order_by(rows)
        return self._database.read(lambda connection: list(connection.execute(asked).scalars()))

    def add(self, job: FailedJob) -> None:
        """Keep a job."""
        self._database.write(lambda connection: self._writing.write(connection, job))

    def get(self, job_id: str) -> FailedJob | None:
        """The job of that id."""
        asked = self._rows_asked.where(self._failed.c.uuid == job_id)
        row = self._database.read(lambda connection: connection.execute(asked).first())
        return None if row is None else self._read(row)

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """Up to `count` jobs, the oldest first."""
        mark, found = mark_of(cursor), list[FailedJob]()
        while True:
            rows = self._database.read(partial(self._rows, query, mark))
            for row in rows:
                job = self._read(row)
                if not query.has(job):
                    continue
                if len(found) == count:
                    return FailedPage(tuple(found), mark.cursor())
                found.append(job)
                mark = Mark(row.at_ms, row.uuid)
            if len(rows) < AT_ONCE:
                return FailedPage(tuple(found), "")
            mark = Mark(rows[-1].at_ms, rows[-1].uuid)

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """How many are meant."""
        if query.name is not None:
            return sum(1 for _ in self._all(query))
        asked = self._rows_asked.with_only_columns(func.count()).where(*self._meant(query))
        return self._database.read(lambda connection: int(connection.execute(asked).scalar_one()))

    def forget(self, job_ids: Sequence[str]) -> int:
        """Remove these; how many were there."""
        gone = 0
        for start in range(0, len(job_ids), AT_ONCE):
            uuids = list(job_ids[start : start + AT_ONCE])
            asked = select(self._failed.c.id).where(self._failed.c.uuid.in_(uuids))
            gone += self._removed(self._database.read(partial(_numbers, asked)))
        return gone

    def prune(self, before_ms: int) -> int:
        """Remove what failed before that time, in steps; how many. Also what is left of jobs that PHP removed."""
        left = self._about.c.number.not_in(select(self._failed.c.id))
        self._database.write(lambda connection: connection.execute(delete(self._about).where(left)))
        asked = self._rows_asked.with_only_columns(self._failed.c.id).where(self._at < before_ms).limit(AT_ONCE)
        total = 0
        while numbers := self._database.read(partial(_numbers, asked)):
            total += self._removed(numbers)
        return total

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    def _removed(self, numbers: Sequence[int]) -> int:
        return self._database.write(lambda connection: remove_rows(connection, self._failed, numbers))

    def _all(self, query: FailedQuery) -> Iterator[FailedJob]:
        cursor = ""
        while True:
            page = self.page(query, cursor=cursor, count=AT_ONCE)
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def _rows(self, query: FailedQuery, mark: Mark, connection: Connection) -> Sequence[Any]:
        uuid, at = self._failed.c.uuid, self._at
        asked = self._rows_asked.add_columns(at.label("at_ms")).where(*self._meant(query))
        if mark != START:
            asked = asked.where(or_(at > mark.failed_ms, and_(at == mark.failed_ms, uuid > mark.id)))
        return connection.execute(asked.order_by(at, uuid).limit(AT_ONCE)).all()

    def _meant(self, query: FailedQuery) -> list[ColumnElement[bool]]:
        """What the database can say; names are patterns, and are looked at here."""
        rows, meant = self._failed.c, [self._at >= query.since_ms]
        if query.until_ms is not None:
            meant.append(self._at <= query.until_ms)
        if query.queue is not None:
            meant.append(rows.queue == query.queue)
        if query.connection is not None:
            known = self._about.c.connection
            names = {query.connection} | ({self._laravel} if query.connection == self._connection else set())
            meant.append(or_(known == query.connection, and_(known.is_(None), rows.connection.in_(sorted(names)))))
        return meant

    def _read(self, row: Any) -> FailedJob:
        """A row that PHP wrote of the connection that both share has delayq's name for it."""
        job = failed_job(row)
        theirs = not is_ours(row) and job.connection == self._laravel
        return structs.replace(job, connection=self._connection) if theirs else job


def _numbers(asked: Select[Any], connection: Connection) -> list[int]:
    return list(connection.execute(asked).scalars())
