"""The producers' side: jobs in a transaction of their own, or in that of the application, when it has one at hand.

    with within(session):                       an SQLAlchemy session or connection, or the alias of a Django database
        CloseOrder(order_id=7).dispatch()       there when the session commits, and never if it does not

That is for sessions of the very database the connection keeps its jobs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from sqlalchemy import Connection

from delayq.core.spec import Delay, JobSpec, prepare_raw
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database.async_batches import AsyncDatabaseBatches
from delayq.drivers.database.batches import DatabaseBatches
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.joining import Joined, joined_to
from delayq.drivers.database.locks import DatabaseLocks
from delayq.drivers.database.retrying import Retrying
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.serving.connection import BrokerConnection, accepted
from delayq.drivers.within import session_at_hand

T = TypeVar("T")


class DatabaseConnection(BrokerConnection):
    """A `Connection` to the tables of a database."""

    def takes(self, session: object) -> bool:
        """Whether jobs can be written in the transaction of that session: it is one of this very database."""
        return joined_to(session, self.broker) is not None

    @property
    def broker(self) -> DatabaseBroker:
        """This process's way to the tables."""
        return cast(DatabaseBroker, super().broker)

    @property
    def batches(self) -> DatabaseBatches:
        """The batches that lie beside its jobs."""
        return DatabaseBatches(self)

    @property
    def abatches(self) -> AsyncDatabaseBatches:
        """As `batches`, awaited."""
        return AsyncDatabaseBatches(self)

    def locks(self) -> DatabaseLocks:
        """The unique keys that its jobs hold."""
        return DatabaseLocks(self.broker, self.options.queue)

    def retry_failed(self, uuid: str, job: FailedJob) -> JobRef:
        """Take a failed job up again, in one step; `uuid` is what the failed know it by. Raises `Conflict`."""
        retrying = Retrying(self.broker, self.options)
        ref = self.broker.database.write(lambda connection: retrying.again(connection, uuid, job))
        return self.at_home([ref])[0]

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do something in the transaction at hand, if there is one; else in one of its own."""
        joined = self._joined()
        return self.broker.database.write(work) if joined is None else joined.run(work)

    async def awrite(self, work: Callable[[Connection], T]) -> T:
        """As `write`; a session for asyncio is awaited."""
        joined = self._joined()
        if joined is None:
            return await asyncio.to_thread(self.broker.database.write, work)
        return await joined.arun(work)

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """In one transaction: the one at hand, if there is one."""
        joined = self._joined()
        if joined is None:
            return super().schedule_many(specs, on_conflict)
        return self.at_home(joined.place(self.checked(specs, on_conflict), on_conflict))

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """An envelope as it is; in the transaction at hand, if there is one."""
        joined = self._joined()
        if joined is None:
            return super().push_raw(envelope, queue=queue, delay=delay)
        return self.at_home(joined.place([self._raw(envelope, queue, delay)], OnConflict.KEEP))[0]

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`; a session for asyncio is awaited."""
        joined = self._joined()
        if joined is None:
            return await super().aschedule_many(specs, on_conflict)
        return self.at_home(await joined.aplace(self.checked(specs, on_conflict), on_conflict))

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `aschedule_many`, of one."""
        return accepted(spec, (await self.aschedule_many([spec], on_conflict))[0])

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`; a session for asyncio is awaited."""
        joined = self._joined()
        if joined is None:
            return await super().apush_raw(envelope, queue=queue, delay=delay)
        return self.at_home(await joined.aplace([self._raw(envelope, queue, delay)], OnConflict.KEEP))[0]

    def _raw(self, envelope: bytes, queue: str | None, delay: Delay | None) -> Item:
        return self._item(prepare_raw(envelope, self.options, queue, delay), self.broker.now_ms())

    def _joined(self) -> Joined | None:
        """The transaction at hand, if it is one of this database."""
        session = session_at_hand()
        return None if session is None else joined_to(session, self.broker)
