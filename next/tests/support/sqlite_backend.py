"""A Backend that keeps jobs in one SQLite file: it shows that the protocols of workers fit a storage without Redis.

Each method of the protocols is one transaction on a connection of its own, which is closed at the end of the
transaction. So threads share nothing, and no process inherits an open connection, which SQLite forbids.
"""

import os
import select
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from delayq.backends.protocol import Backend
from delayq.backends.values import (
    Acked,
    Delivery,
    DeliveryRef,
    Failed,
    Promoted,
    Reclaimed,
    Relayed,
    Released,
    Renewed,
    Repaired,
    SettleAnswer,
    Settlement,
    Stopped,
    Switches,
)
from delayq.core import failure as failures
from delayq.core.envelope import VERSION, Envelope, encode, encode_data
from delayq.core.errors import BackendError, BackendUnavailable
from delayq.core.failure import Failure
from delayq.core.options import DEFAULTS
from delayq.core.queue_order import Order, strict
from delayq.core.states import State
from delayq.settings.connections import Routes
from delayq.settings.model import Settings

BATCH: Final = 500
POLL: Final = 0.02
TRY_TIMEOUT: Final = 2.0
HISTORY: Final = 9

_SCHEMA: Final = (
    # until_ms: end of the lease of a reserved job, time of the failure, or end of the retention of a completed job
    """CREATE TABLE IF NOT EXISTS jobs (
        queue TEXT, id TEXT, state TEXT, due_ms INTEGER, until_ms INTEGER, entry TEXT, consumer TEXT, envelope BLOB,
        recoveries INTEGER DEFAULT 0, is_stopping INTEGER DEFAULT 0, failure BLOB DEFAULT x'', result BLOB DEFAULT x'',
        report BLOB DEFAULT x'', progress BLOB DEFAULT x'', PRIMARY KEY (queue, id))""",
    "CREATE INDEX IF NOT EXISTS in_order ON jobs (queue, state, due_ms)",
    "CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, reclaimed_at INTEGER, hold_until INTEGER)",
    "CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), entries INTEGER)",
    "INSERT OR IGNORE INTO counter VALUES (1, 0)",
)
_READ: Final = "SELECT queue, id, entry, envelope, recoveries, due_ms, is_stopping FROM jobs "

Trip = tuple[list[int | BackendError], list[Delivery]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Jobs:
    """The jobs of the file during one transaction."""

    def __init__(self, db: sqlite3.Connection, lease_ms: int, max_recoveries: int) -> None:
        self.db = db
        self.lease_ms = lease_ms
        self.max_recoveries = max_recoveries
        self.now_ms = now_ms()

    def read(self, where: str, *values: object) -> list[Delivery]:
        return [
            Delivery(queue, id, entry or "", envelope, recoveries, b"%d" % due_ms, bool(is_stopping))
            for queue, id, entry, envelope, recoveries, due_ms, is_stopping in self.db.execute(_READ + where, values)
        ]

    def write(self, job: DeliveryRef | Delivery | Settlement, **columns: object) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(f"UPDATE jobs SET {names} WHERE queue = ? AND id = ?", (*columns.values(), job.queue, job.id))

    def owned(self, job: DeliveryRef | Settlement) -> Delivery | None:
        """The fence: return the delivery if it still belongs to the caller."""
        where = "WHERE queue = ? AND id = ? AND entry = ? AND state = 'reserved'"
        return next(iter(self.read(where, job.queue, job.id, job.entry)), None)

    def take(self, queues: Sequence[str], consumer: str, limit: int) -> list[Delivery]:
        taken: list[Delivery] = []
        for queue in queues:
            ready = "WHERE queue = ? AND state = 'ready' ORDER BY entry LIMIT ?"
            taken += self.read(ready, queue, limit - len(taken))
        for job in taken:
            self.write(job, state="reserved", consumer=consumer, until_ms=self.now_ms + self.lease_ms)
        return taken

    def held_by(self, consumer: str) -> list[Delivery]:
        """Return the deliveries of a consumer. This renews their leases."""
        self.db.execute(
            "UPDATE jobs SET until_ms = ? WHERE state = 'reserved' AND consumer = ?",
            (self.now_ms + self.lease_ms, consumer),
        )
        return self.read("WHERE state = 'reserved' AND consumer = ? ORDER BY entry", consumer)

    def make_ready(self, job: DeliveryRef | Delivery, **columns: object) -> None:
        """Put a job at the end of its queue, under a new entry id. As text, too, each id is higher than all before."""
        ((number,),) = self.db.execute("UPDATE counter SET entries = entries + 1 RETURNING entries").fetchall()
        self.write(job, state="ready", entry=f"{number:020}", consumer=None, progress=b"", **columns)

    def settle(self, settled: Settlement) -> SettleAnswer:
        job = self.owned(settled)
        if job is None:
            return SettleAnswer.FENCED
        if isinstance(settled, (Released, Failed)) and job.is_stopping:
            return SettleAnswer.STOP_ASKED
        if isinstance(settled, Acked) and settled.retention_ms:
            kept = {"result": settled.result, "report": settled.report, "failure": b"", "progress": b""}
            until_ms = self.now_ms + settled.retention_ms
            self.write(settled, state="completed", entry=None, until_ms=until_ms, is_stopping=0, **kept)
        elif isinstance(settled, Released):
            self.add_failure(settled, settled.failure)
            due_ms = self.now_ms + settled.delay_ms
            self.write(settled, state="scheduled", entry=None, due_ms=due_ms, envelope=settled.envelope, progress=b"")
        elif isinstance(settled, Failed):
            self.fail(settled, settled.failure, envelope=settled.envelope or job.envelope)
        else:
            self.db.execute("DELETE FROM jobs WHERE queue = ? AND id = ?", (settled.queue, settled.id))
        return SettleAnswer.SETTLED

    def hand_back(self, jobs: Sequence[DeliveryRef]) -> None:
        for job in jobs:
            if self.owned(job):
                self.make_ready(job)

    def recover(self, ref: DeliveryRef) -> bool:
        """Count a recovery and deliver the job again. Return True if it failed, because it had too many."""
        job = self.owned(ref)
        if job is None:
            return False
        recoveries = job.recoveries + 1
        if recoveries <= self.max_recoveries:
            self.make_ready(job, recoveries=recoveries)
            return False
        why = failures.note("WorkerVanished", f"The worker vanished {recoveries} times while it had this job.")
        self.fail(job, failures.encode(msgspec.structs.replace(why, at_ms=self.now_ms)), recoveries=recoveries)
        return True

    def fail(self, job: Delivery | Failed, failure: bytes, **columns: object) -> None:
        self.add_failure(job, failure)
        self.write(job, state="failed", entry=None, until_ms=self.now_ms, is_stopping=0, progress=b"", **columns)

    def add_failure(self, job: Delivery | Settlement, failure: bytes) -> None:
        """Store a failure, with the earlier failures as its history."""
        new = failures.decode(failure)
        if new is None:
            return
        place = (job.queue, job.id)
        ((stored,),) = self.db.execute("SELECT failure FROM jobs WHERE queue = ? AND id = ?", place).fetchall()
        if earlier := failures.decode(stored):
            history = [*earlier.history, msgspec.structs.replace(earlier, history=[])][:HISTORY]
            new = msgspec.structs.replace(new, history=history)
        self.write(job, failure=failures.encode(new))


class SqliteFile:
    """The file, without a connection."""

    def __init__(self, path: Path, lease_ms: int, max_recoveries: int) -> None:
        self.path = path
        self.lease_ms = lease_ms
        self.max_recoveries = max_recoveries

    @contextmanager
    def transaction(self) -> Iterator[Jobs]:
        """Open the file for one transaction. Raises BackendUnavailable; nothing has changed then."""
        try:
            with closing(sqlite3.connect(self.path, timeout=TRY_TIMEOUT, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("BEGIN IMMEDIATE")
                with db:
                    for statement in _SCHEMA:
                        db.execute(statement)
                    yield Jobs(db, self.lease_ms, self.max_recoveries)
        except sqlite3.OperationalError as error:
            raise BackendUnavailable(f"SQLite cannot use {self.path}: {error}.") from error

    def open(self) -> float:
        """Create the tables, and return the lease in seconds."""
        with self.transaction() as jobs:
            return jobs.lease_ms / 1000


class SqliteConsumer:
    """A Consumer. A trip has its reply as soon as it has begun."""

    def __init__(
        self, file: SqliteFile, queues: Sequence[str], *, name: str, order: Order, wake_fd: int | None
    ) -> None:
        self._file = file
        self._queues = queues
        self._name = name
        self._order = order
        self._wake_fds = [] if wake_fd is None else [wake_fd]

    def open(self) -> float:
        return self._file.open()

    def now_ms(self) -> int:
        return now_ms()

    def begin(self, settled: Sequence[Settlement], limit: int) -> Trip:
        with self._file.transaction() as jobs:
            answers: list[int | BackendError] = [jobs.settle(settlement) for settlement in settled]
            return answers, jobs.take(self._order(self._queues), self._name, limit)

    def complete(self, trip: Trip) -> Trip:
        return trip

    def wait(self, timeout: float) -> list[Delivery]:
        end = time.monotonic() + timeout
        while True:
            with self._file.transaction() as jobs:
                taken = jobs.take(self._order(self._queues), self._name, 1)
            left = end - time.monotonic()
            if taken or left <= 0:
                return taken
            if select.select(self._wake_fds, [], [], min(POLL, left))[0]:
                os.read(self._wake_fds[0], 4096)
                return self.pending()

    def pending(self) -> list[Delivery]:
        with self._file.transaction() as jobs:
            return jobs.held_by(self._name)

    def hand_back(self, jobs: Sequence[DeliveryRef]) -> None:
        with self._file.transaction() as stored:
            stored.hand_back(jobs)

    def unlock(self, job: DeliveryRef, digest: str) -> bool:
        return True

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        with self._file.transaction() as jobs:
            for job, report in progress:
                if jobs.owned(job):
                    jobs.write(job, progress=report)

    def switches(self) -> Switches:
        return Switches()

    def has_unread(self) -> bool:
        return False

    def has_follow_ups(self) -> bool:
        return False


class SqliteLeaseKeeper:
    """A LeaseKeeper."""

    def __init__(self, file: SqliteFile, queues: Sequence[str]) -> None:
        self._file = file
        self._queues = list(queues)
        self._stop_requests: set[tuple[str, str]] = set()

    def open(self) -> float:
        return self._file.open()

    def queues(self) -> list[str]:
        return self._queues

    def now_ms(self) -> int:
        return now_ms()

    def restart_ms(self) -> int:
        return 0

    def renew(self, consumer: str, jobs: Sequence[DeliveryRef]) -> Renewed:
        given = {job.key for job in jobs}
        with self._file.transaction() as stored:
            until_ms = stored.now_ms + stored.lease_ms
            held = stored.read("WHERE state = 'reserved' AND consumer = ?", consumer)
            renewed = [job for job in held if job.key in given]
            for job in renewed:
                stored.write(job, until_ms=until_ms)
            cancelled = [(job.queue, job.id) for job in renewed if job.is_stopping]
            return Renewed(stored.lease_ms, len(held) - len(renewed), cancelled)

    def pending(self, consumer: str) -> list[Delivery]:
        with self._file.transaction() as jobs:
            return jobs.held_by(consumer)

    def stop_requests(self) -> list[tuple[str, str]]:
        with self._file.transaction() as jobs:
            asked = {(job.queue, job.id) for job in jobs.read("WHERE state = 'reserved' AND is_stopping")}
        new, self._stop_requests = asked - self._stop_requests, asked
        return sorted(new)

    def settle_after_death(
        self,
        done: Sequence[DeliveryRef],
        unstarted: Sequence[DeliveryRef],
        vanished: Sequence[DeliveryRef],
        decided: Sequence[Settlement],
    ) -> list[DeliveryRef]:
        with self._file.transaction() as jobs:
            for job in done:
                jobs.settle(Acked(job.queue, job.id, job.entry))
            jobs.hand_back(unstarted)
            for settled in decided:
                if jobs.settle(settled) is SettleAnswer.STOP_ASKED:
                    jobs.settle(Stopped(settled.queue, settled.id, settled.entry))
            return [job for job in vanished if jobs.recover(job)]


class SqliteQueueKeeper:
    """A QueueKeeper. There is nothing to follow up, because no chains and batches are sent here."""

    has_all_queues = True

    def __init__(self, file: SqliteFile, queues: Sequence[str]) -> None:
        self._file = file
        self._queues = queues

    def queues(self) -> list[str]:
        with self._file.transaction() as jobs:
            return sorted({*self._queues, *(queue for (queue,) in jobs.db.execute("SELECT DISTINCT queue FROM jobs"))})

    def promote(self, queue: str) -> Promoted:
        with self._file.transaction() as jobs:
            scheduled = "WHERE queue = ? AND state = 'scheduled' ORDER BY due_ms LIMIT ?"
            first = jobs.read(scheduled, queue, BATCH + 1)
            due = [job for job in first[:BATCH] if job.due_ms <= jobs.now_ms]
            for job in due:
                jobs.make_ready(job)
            waiting = first[len(due) :]
            wait_us = max(waiting[0].due_ms - jobs.now_ms, 0) * 1000 if waiting else -1
            return Promoted(len(due), 0, wait_us)

    def reclaim(self, queue: str) -> Reclaimed:
        with self._file.transaction() as jobs:
            hold_ms = self._hold(jobs, queue)
            if hold_ms > 0:
                return Reclaimed(0, 0, hold_ms, jobs.lease_ms)
            expired = "WHERE queue = ? AND state = 'reserved' AND until_ms <= ? LIMIT ?"
            taken = jobs.read(expired, queue, jobs.now_ms, BATCH)
            failed = sum(jobs.recover(job.ref) for job in taken)
            return Reclaimed(len(taken) - failed, failed, 0, jobs.lease_ms, int(len(taken) == BATCH))

    def repair(self, queue: str) -> Repaired:
        with self._file.transaction() as jobs:
            over = "DELETE FROM jobs WHERE queue = ? AND state = 'completed' AND until_ms <= ?"
            return Repaired(pruned=jobs.db.execute(over, (queue, jobs.now_ms)).rowcount)

    def follow_up(self, queue: str) -> Relayed:
        return Relayed(0)

    def _hold(self, jobs: Jobs, queue: str) -> int:
        """Return for how many ms no lease can be trusted: for one lease after a gap of more than half a lease."""
        jobs.db.execute("INSERT OR IGNORE INTO queues VALUES (?, 0, 0)", (queue,))
        asked = "SELECT reclaimed_at, hold_until FROM queues WHERE name = ?"
        ((reclaimed_at, hold_until),) = jobs.db.execute(asked, (queue,)).fetchall()
        if not 0 <= jobs.now_ms - reclaimed_at <= jobs.lease_ms / 2:
            hold_until = jobs.now_ms + jobs.lease_ms
        write = "UPDATE queues SET reclaimed_at = ?, hold_until = ? WHERE name = ?"
        jobs.db.execute(write, (jobs.now_ms, hold_until, queue))
        return int(hold_until - jobs.now_ms)


class StoredJob(NamedTuple):
    """A job as a test sees it. `state` is absent if there is no such job."""

    state: State
    recoveries: int = 0
    failure: Failure | None = None


class SqliteClient:
    """A client with the few operations that tests need."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def schedule(self, name: str, id: str, *, delay_ms: int = 0, queue: str = "q", **data: object) -> int:
        """Store a job, and return its due time in epoch ms."""
        with self._file.transaction() as jobs:
            due_ms = jobs.now_ms + delay_ms
            raw = encode_data(data, DEFAULTS.max_payload)
            envelope = Envelope(v=VERSION, id=id, name=name, queue=queue, data=raw, attempts=0, created_ms=jobs.now_ms)
            row = (queue, id, due_ms, encode(envelope))
            jobs.db.execute(
                "INSERT INTO jobs (queue, id, state, due_ms, envelope) VALUES (?, ?, 'scheduled', ?, ?)", row
            )
            return due_ms

    def cancel(self, id: str, *, queue: str = "q") -> None:
        """Delete a job that is not reserved; ask a reserved job to stop."""
        with self._file.transaction() as jobs:
            jobs.db.execute("DELETE FROM jobs WHERE queue = ? AND id = ? AND state <> 'reserved'", (queue, id))
            jobs.db.execute("UPDATE jobs SET is_stopping = 1 WHERE queue = ? AND id = ?", (queue, id))

    def job(self, id: str, *, queue: str = "q") -> StoredJob:
        with self._file.transaction() as jobs:
            found = jobs.db.execute(
                "SELECT state, recoveries, failure FROM jobs WHERE queue = ? AND id = ?", (queue, id)
            ).fetchall()
        if not found:
            return StoredJob("absent")
        ((state, recoveries, failure),) = found
        return StoredJob(state, recoveries, failures.decode(failure))


class SqliteBackend:
    """The Backend of one file. A recipe holds no connection."""

    has_loops = True

    def __init__(
        self, path: Path, *, lease_ms: int = DEFAULTS.lease_ms, max_recoveries: int = DEFAULTS.max_recoveries
    ) -> None:
        self.where = str(path)
        self._file = SqliteFile(path, lease_ms, max_recoveries)

    def shares_jobs_with(self, other: Backend) -> bool:
        return isinstance(other, SqliteBackend) and other.where == self.where

    def prepare(self) -> None:
        """There is nothing to load."""

    def check(self) -> None:
        """No setting of SQLite loses jobs."""

    def consumer(
        self,
        queues: Sequence[str],
        *,
        name: str,
        order: Order = strict,
        forced: bool = False,
        wake_fd: int | None = None,
    ) -> SqliteConsumer:
        return SqliteConsumer(self._file, queues, name=name, order=order, wake_fd=wake_fd)

    def lease_keeper(self, queues: Sequence[str]) -> SqliteLeaseKeeper:
        return SqliteLeaseKeeper(self._file, queues)

    def queue_keeper(self, queues: Sequence[str], *, name: str) -> SqliteQueueKeeper:
        return SqliteQueueKeeper(self._file, queues)

    def wake_ups(self) -> None:
        return None

    def worker_registry(self) -> None:
        return None

    def session(self, *, is_async: bool, routes: Routes) -> Any:
        return SqliteClient(self._file)


class SqliteDriver(SqliteBackend):
    """The backend of a connection with `driver = "tests.support.sqlite_backend:SqliteDriver"`. Its url is a path."""

    def __init__(self, settings: Settings) -> None:
        options = settings.options()
        path = Path(settings.must_have_url())
        super().__init__(path, lease_ms=options.lease_ms, max_recoveries=options.max_recoveries)
