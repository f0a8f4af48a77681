"""Takes a failed job up again: out of the failed, into its queue, into its batch, in one transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import Connection, select

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.errors import Conflict
from delayq.core.options import Options
from delayq.core.spec import prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.core.unique import again_of
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.failing import elsewhere, failed_job, failed_rows, remove_rows
from delayq.drivers.failed_store import FailedJob


@dataclass(frozen=True, slots=True)
class Retrying:
    """`options` are those of the connection it was dispatched over."""

    broker: DatabaseBroker
    options: Options

    def again(self, connection: Connection, uuid: str, job: FailedJob) -> JobRef:
        """With all its tries. `uuid` is what its row is called.

        Raises `Conflict` when its id or its unique key is taken, `BadEnvelope` for what cannot be read.
        """
        raw = self.broker.load(job.payload)
        raw = envelopes.afresh(raw, envelopes.decode(raw), time.time_ns() // 1_000_000)
        made = prepare_raw(raw, self.options, job.queue)
        now_ms, lock = self.broker.now_ms(), again_of(envelopes.decode(raw).unique)
        item = Item(made.id, made.name, made.queue, made.envelope, 0, now_ms, lock)
        [ref] = self.broker.place(connection, [item], OnConflict.KEEP)
        if ref.outcome is not Answer.CREATED:
            what = "unique key" if ref.id != made.id else "id"
            raise Conflict(f"The {what} of the failed job {job.id!r} is taken by {ref.id!r} in {made.queue!r}.")
        self.broker.batching.do(connection, follow.restarted(made.envelope), now_ms)
        failed = self.broker.tables.failed
        numbers = connection.execute(select(failed.c.id).where(failed.c.uuid == uuid)).scalars().all()
        remove_rows(connection, failed, numbers)
        return ref

    def find(self, connection: Connection, job_id: str, queue: str) -> tuple[str, FailedJob] | None:
        """A failed job of that queue, and what its row is called."""
        failed = self.broker.tables.failed
        named = failed.c.uuid.in_((job_id, elsewhere(job_id, queue))), failed.c.queue == queue
        connection.execute(select(failed.c.id).where(*named).with_for_update())
        found = connection.execute(failed_rows(failed).where(*named)).first()
        return None if found is None else (found.uuid, failed_job(found))
