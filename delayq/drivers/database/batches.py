"""The batches of a connection to a database: each verb is one transaction, or a part of the application's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from delayq.core.audit import check_reason
from delayq.core.batches import BatchInfo
from delayq.core.errors import BatchNotFound, Conflict, JobNotFound
from delayq.core.followups import Link, Plan, Word
from delayq.core.names import check_batch_id
from delayq.drivers.capabilities import refuse_plan
from delayq.drivers.database.batching import Batching
from delayq.drivers.database.retrying import Retrying

if TYPE_CHECKING:
    from delayq.drivers.database.connection import DatabaseConnection

T = TypeVar("T")
LISTED = 50
log = logging.getLogger("delayq.audit")


class DatabaseBatches:
    """A `BatchStore`. All but `open` and `list` raise `BatchNotFound` for one that is not there.

    A reason goes to the log `delayq.audit`: a database keeps no record of deeds.
    """

    def __init__(self, connection: DatabaseConnection) -> None:
        self._connection = connection

    def open(self, plan: Plan) -> BatchInfo:
        """Begin a batch and send its members, in the transaction at hand if there is one."""
        return self._connection.write(self.opening(plan))

    def opening(self, plan: Plan) -> Callable[[Connection], BatchInfo]:
        """What `open` does in a transaction. Raises for what this connection cannot carry, before there is one."""
        connection = self._connection
        refuse_plan(plan, connection.capabilities, connection.name)
        now_ms = connection.broker.now_ms()

        def work(transaction: Connection) -> BatchInfo:
            self._batching.open(transaction, plan, now_ms)
            return self._told(transaction, plan.id)

        return work

    def get(self, batch: str) -> BatchInfo:
        """A batch as it stands."""
        return self._read(lambda connection: self._told(connection, check_batch_id(batch)))

    def add(self, batch: str, members: Sequence[Link]) -> BatchInfo:
        """More members for a batch that goes on."""
        now_ms = self._connection.broker.now_ms()
        refuse_plan(Plan(id=batch, members=list(members)), self._connection.capabilities, self._connection.name)

        def work(connection: Connection) -> BatchInfo:
            self._batching.add(connection, check_batch_id(batch), members, now_ms)
            return self._told(connection, batch)

        return self._write(work)

    def cancel(self, batch: str, *, reason: str | None = None) -> BatchInfo:
        """Let nothing of it start any more: what waits is deleted, what runs goes on."""
        now_ms = self._connection.broker.now_ms()
        self._tell("cancel", batch, reason)

        def work(connection: Connection) -> BatchInfo:
            self._batching.note(connection, check_batch_id(batch), (), now_ms, cancel=True)
            return self._told(connection, batch)

        return self._write(work)

    def retry(self, batch: str, *, reason: str | None = None) -> int:
        """Retry every member that failed; how many. What was skipped stays skipped."""
        self._tell("retry", batch, reason)
        return sum(self._write(lambda connection: self._again(connection, check_batch_id(batch))))

    def pending(self, batch: str, limit: int = LISTED) -> list[tuple[str, str]]:
        """At most `limit` members that have not ended, each with its queue ('' = a batch)."""
        return self._read(lambda connection: self._batching.rows.members(connection, batch, Word.PENDING, limit))

    def failed(self, batch: str) -> list[tuple[str, str]]:
        """The members that failed, each with its queue ('' = a batch)."""
        return self._read(lambda connection: self._batching.rows.members(connection, batch, Word.FAILED))

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _batching(self) -> Batching:
        return self._connection.broker.batching

    def _again(self, connection: Connection, batch: str) -> list[bool]:
        """A True for each job that was taken up; those forgotten, or whose key is taken, are left."""
        self._told(connection, batch)
        retrying = Retrying(self._connection.broker, self._connection.options)
        done: list[bool] = []
        for member, queue in self._batching.rows.members(connection, batch, Word.FAILED):
            if queue == "":
                done += self._again(connection, member)
                continue
            found = retrying.find(connection, member, queue)
            try:
                if found is not None:
                    retrying.again(connection, *found)
                    done.append(True)
            except (Conflict, JobNotFound):
                continue
        return done

    def _told(self, connection: Connection, batch: str) -> BatchInfo:
        row = self._batching.rows.find(connection, batch)
        if row is None:
            raise BatchNotFound(f"There is no batch {batch!r}.", hint="delayq batch list shows those there are.")
        return self._batching.rows.told(connection, row)

    def _tell(self, what: str, batch: str, reason: str | None) -> None:
        if reason is not None:
            log.info("batch %s %s: %s", what, batch, check_reason(reason))

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._connection.broker.database.read(work)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._connection.broker.database.write(work)

    def list(self, limit: int = LISTED) -> list[BatchInfo]:
        """The newest batches, newest first. Those that Laravel began are its own."""
        rows = self._batching.rows
        return self._read(lambda connection: [rows.told(connection, row) for row in rows.newest(connection, limit)])
