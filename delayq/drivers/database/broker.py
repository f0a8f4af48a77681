"""A `Broker` on a database: each verb is one transaction of its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from delayq.core import follow
from delayq.core.errors import BadEnvelope
from delayq.core.followups import End
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Act, Again, Depth, Item, Waiting, WaitingPage
from delayq.drivers.database import due, payload
from delayq.drivers.database.aside import DatabaseSource
from delayq.drivers.database.asking import DatabaseLimits
from delayq.drivers.database.batch_heard import ends_of, together
from delayq.drivers.database.batching import Batching
from delayq.drivers.database.claiming import Claiming, Lease
from delayq.drivers.database.clock import Clock, database_clock, now_of
from delayq.drivers.database.engine import Database
from delayq.drivers.database.keyed_placing import KeyedPlacing
from delayq.drivers.database.locking import Locking
from delayq.drivers.database.looking import Looking, waiting_of
from delayq.drivers.database.placing import Placing, row_of
from delayq.drivers.database.schema import refuse_lacking
from delayq.drivers.database.settling import Settling
from delayq.drivers.database.tables import Tables
from delayq.drivers.database.waking import Waker, queues_of, waker_of
from delayq.drivers.database.watching import Watch
from delayq.drivers.migrating.ends import Source

TAKEN_BACK_AT_ONCE: Final = 500
CLOCK_S: Final = 30.0
LOCKED_TEXT: Final = '"unique":'
MEMBER: Final = b'"batch":'
LOCKED: Final = LOCKED_TEXT.encode()
"""What an envelope holds that has a key; so may its data, and then there is nothing to free."""
ANY_QUEUE: Final = "default"
"""A payload does not say which queue it stood in; who pushes it again does."""


class DatabaseBroker:
    """One process's way to the tables. `objects`: also jobs that are PHP objects are worked."""

    def __init__(
        self,
        database: Database,
        tables: Tables,
        lease: Lease,
        *,
        objects: bool = False,
        laravel: str = "",
        clock: Clock = database_clock,
    ) -> None:
        self.database = database
        self.tables = tables
        self._lease = lease
        self._clock = clock
        self.locking = Locking(tables, database.kind)
        self.batching = Batching(tables, lambda connection, items: self.place(connection, items, OnConflict.KEEP))
        self._placing = KeyedPlacing(Placing(tables.jobs, database.kind, self._given_way), self.locking, tables)
        self.claiming = Claiming(tables.jobs, database.kind, lease, objects=objects, clock=clock)
        self._settling = Settling(tables, lease_ms=lease.lease_ms, laravel=laravel, clock=clock)
        self._looking = Looking(tables, self._removed, clock)
        self._watches: dict[str, Watch] = {}
        self._waker: Waker = waker_of(database, tables.jobs)
        self._offset_ms: float | None = None
        self._asked_at = float("-inf")

    # -- producing ---------------------------------------------------------------------------------------------------

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """All or none of them, in one transaction."""
        return self.database.write(lambda connection: self.place(connection, items, on_conflict))

    def fit(self, items: Sequence[Item]) -> None:
        """Raises `InvalidInput` for a time no row can hold."""
        now_ms = self.now_ms()
        for item in items:
            row_of(item, now_ms)

    def place(self, connection: Connection, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """As `push`, in a transaction of somebody else."""
        refs = self._placing.place(connection, items, on_conflict, self._now_in(connection))
        self._waker.hint(connection, queues_of(items))
        return refs

    # -- working -----------------------------------------------------------------------------------------------------

    def ready(self, queues: Sequence[str]) -> None:
        """Look that the tables are there. Raises `ConfigError` with the command that makes them."""
        refuse_lacking(self.database, self.tables)

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        """Reserve in one statement; first take back what is over, about three times in a lease."""
        self._take_back(queue)
        token = secrets.token_hex(10)
        asked_at = time.monotonic()
        rows = self.database.write(lambda connection: self.claiming.reserve(connection, queue, count, token))
        if rows and self._clock() is None:
            self._see_time(rows[0].now_ms, asked_at)
        return [_delivery(row, token) for row in rows]

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        """Wait for a hint or the next due time, then reserve one job of the first queue that has one."""
        now_ms = self.now_ms()
        next_ms = self.database.read(lambda connection: self._looking.next_due(connection, queues))
        until_s = seconds if next_ms is None else min(seconds, max(0, next_ms - now_ms) / 1000)
        if until_s > 0:
            self._waker.wait(until_s)
        for queue in queues:
            if found := self.reserve(queue, 1):
                return found
        return []

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """End reservations, and put what follows into its queues, in one transaction."""

        def work(connection: Connection) -> list[bool]:
            now_ms = self._now_in(connection)
            answers, done = self._settling.settle(connection, acts, now_ms)
            ended = [act for act in done if not isinstance(act, Again)]
            self.locking.free(connection, [act.claim[:2] for act in ended if LOCKED in act.raw])
            follows = [item for act in ended for item in act.then]
            told = together(told for act in ended for told in act.told)
            self.batching.join(connection, follow.joining(told))
            if follows:
                self.batching.send(connection, follows, now_ms)
            self.batching.do(connection, told, now_ms)
            for act in done:
                if isinstance(act, Again) and MEMBER in act.raw:
                    self.batching.tried_again(connection, act.raw, now_ms)
            return answers

        return self.database.write(work) if acts else []

    def limits(self, connection: str) -> DatabaseLimits:
        """Answers what unique jobs and members of batches ask; limits are refused."""
        return DatabaseLimits(connection, self.database, self.batching.rows, self.locking, self._settling.holds)

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        """Make available again."""
        self.database.write(lambda connection: self._settling.give_back(connection, claims, lost=vanished))

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Start the leases anew; Laravel sees it in reserved_at."""
        return self.database.write(lambda connection: self._settling.renew(connection, claims)) if claims else []

    def envelope(self, claim: Claim) -> bytes:
        """The envelope of a reservation that still holds."""
        row = self.database.read(lambda connection: self._settling.payload_of(connection, claim))
        if row is None:
            return b""
        return payload.read_any(row.payload, queue=row.queue, attempts=row.attempts - 1).envelope

    def dump(self, envelope: bytes) -> bytes:
        """A payload as Laravel writes it."""
        try:
            return payload.written(envelope).encode()
        except BadEnvelope:
            return envelope

    def load(self, given: bytes) -> bytes:
        """The envelope in a payload. Raises `BadEnvelope`."""
        return payload.read(given.decode("utf-8", "surrogateescape"), queue=ANY_QUEUE, attempts=0).envelope

    def lease_s(self, queue: str) -> float:
        """The lease is the connection's, for all queues."""
        return self._lease.lease_ms / 1000

    def now_ms(self) -> int:
        """The database's time, asked for twice a minute and carried on; SQLite's is this machine's."""
        given = self._clock()
        if given is not None:
            return given
        if self.database.kind == "sqlite":
            return time.time_ns() // 1_000_000
        if time.monotonic() - self._asked_at > CLOCK_S or self._offset_ms is None:
            asked_at = time.monotonic()
            self._see_time(self.database.read(self._asked), asked_at)
        return int(time.monotonic() * 1000 + (self._offset_ms or 0.0))

    # -- looking and removing ----------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """The queues that hold something."""
        return self.database.read(self._looking.queues)

    def depth(self, queue: str) -> Depth:
        """How long a queue is."""
        return self.database.read(lambda connection: self._looking.depth(connection, queue))

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        """Jobs that wait, page by page."""
        return self.database.read(lambda connection: self._looking.page(connection, queue, cursor, count))

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        """Remove jobs that still wait as they were shown."""
        return self.database.write(lambda connection: self._looking.remove(connection, jobs))

    def clear(self, queue: str) -> int:
        """Remove everything that waits, in steps; how many."""
        total = 0
        while gone := self.database.write(lambda connection: self._looking.clear(connection, queue)):
            total += gone
        return total

    def find(self, queue: str, job_id: str) -> Waiting | None:
        """The job, if it waits."""
        row = self.database.write(lambda connection: self._looking.find(connection, queue, job_id))
        return None if row is None or row.reserved_at is not None else waiting_of(row)

    def show(self, queue: str, job_id: str) -> Waiting | None:
        """The job, whether it waits or runs."""
        row = self.database.write(lambda connection: self._looking.find(connection, queue, job_id))
        return None if row is None else waiting_of(row)._replace(reserved=row.reserved_at is not None)

    def cancel(self, queue: str, job_id: str) -> Answer:
        """Remove it if it waits."""
        return self.database.write(lambda connection: self._looking.cancel(connection, queue, job_id))

    def reschedule(self, queue: str, job_id: str, due_ms: int) -> Answer:
        """Give it another time if it waits."""

        def work(connection: Connection) -> Answer:
            answer = self._looking.reschedule(connection, queue, job_id, due_ms, self._now_in(connection))
            self._waker.hint(connection, [queue])
            return answer

        return self.database.write(work)

    def source(self) -> Source:
        """Where a migration takes jobs from."""
        return DatabaseSource(self.database, self.tables.jobs, self._looking)

    def close(self) -> None:
        """Close the connections."""
        self._waker.close()
        self.database.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_back(self, queue: str) -> None:
        watch = self._watches.setdefault(queue, Watch(self._lease.lease_ms))
        if not watch.time_to_look():
            return
        asked_at = time.monotonic()
        if watch.may_take_back(self.database.read(self._asked), asked_at):
            self.database.write(lambda connection: self._tidied(connection, queue))

    def _tidied(self, connection: Connection, queue: str) -> None:
        self.claiming.reclaim(connection, queue, TAKEN_BACK_AT_ONCE)
        self.locking.sweep(connection, queue, self._now_in(connection))

    def _given_way(self, connection: Connection, row: Any, keeps: str) -> None:
        """Another job is written over this one: its other key is free, and what follows it will not come."""
        if row.delayq_id is not None and LOCKED_TEXT in row.payload:
            self.locking.free(connection, [(row.queue, row.delayq_id)], but=keeps)
        self.batching.do(connection, ends_of(row, End.CANCELLED), self._now_in(connection))

    def _removed(self, connection: Connection, rows: Sequence[Any]) -> None:
        """Somebody took these out before they ran."""
        self.locking.free(connection, [(row.queue, row.delayq_id) for row in rows if row.delayq_id is not None])
        told = [told for row in rows for told in ends_of(row, End.CANCELLED)]
        self.batching.do(connection, together(told), self._now_in(connection))

    def _now_in(self, connection: Connection) -> int:
        """The time, for a transaction that counts with it."""
        given = self._clock()
        if given is not None:
            return given
        return time.time_ns() // 1_000_000 if self.database.kind == "sqlite" else self._asked(connection)

    def _asked(self, connection: Connection) -> int:
        return int(connection.execute(select(now_of(self._clock))).scalar_one())

    def _see_time(self, now_ms: int, asked_at: float) -> None:
        self._asked_at = asked_at
        self._offset_ms = int(now_ms) - asked_at * 1000


def _delivery(row: Any, token: str) -> Delivery:
    found = payload.read_any(row.payload, queue=row.queue, attempts=row.attempts_made)
    entry, due_ms = f"{row.id}.{token}", due.due_of(row)
    return Delivery(
        row.queue, found.id, entry, found.envelope, due_ms, row.delayq_recoveries, unreadable=found.unreadable
    )
