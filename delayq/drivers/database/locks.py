"""The unique keys of a connection to a database, for people: look at them, and free one by hand."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection

from delayq.core import envelope as envelopes
from delayq.core.audit import check_reason
from delayq.core.errors import BadEnvelope, LockNotFound
from delayq.core.limiting import Unlocked
from delayq.core.lock_views import LockView
from delayq.core.states import State
from delayq.core.unique import Until, until_of
from delayq.drivers.database import payload
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.placing import state_of

log = logging.getLogger("delayq.audit")


class DatabaseLocks:
    """Of one connection. `queue` is the one meant when none is named."""

    def __init__(self, broker: DatabaseBroker, queue: str) -> None:
        self._broker = broker
        self._queue = queue

    def all(self, queue: str | None = None, *, limit: int = 100) -> list[LockView]:
        """At most `limit` of them, of one queue or of all, each with its owner."""
        return self._broker.database.read(lambda connection: self._views(connection, queue, limit))

    def get(self, lock: str, *, queue: str | None = None) -> LockView:
        """One, by what it is called in the list. Raises `LockNotFound`."""
        return self._broker.database.read(lambda connection: self._one(connection, lock, queue or self._queue))

    def free(self, lock: str, *, queue: str | None = None, reason: str) -> LockView:
        """Free it by hand; the reason goes to the log `delayq.audit`, and the owner goes on. Raises `LockNotFound`."""
        said, name = check_reason(reason), queue or self._queue

        def work(connection: Connection) -> LockView:
            view = self._one(connection, lock, name)
            if self._broker.locking.drop(connection, name, lock, view.owner) is not Unlocked.FREED:
                raise LockNotFound(f"The lock {lock!r} in queue {name!r} was freed by its owner meanwhile.")
            return view

        view = self._broker.database.write(work)
        log.info("lock free %s %s, held by %s: %s", name, lock, view.owner, said)
        return view

    def _one(self, connection: Connection, lock: str, queue: str) -> LockView:
        rows = self._broker.locking.listed(connection, queue, 1, name=lock)
        if not rows:
            raise LockNotFound(
                f"Nobody holds the lock {lock!r} in queue {queue!r}.", hint="`delayq lock list` tells who does."
            )
        return _view(rows[0], self._broker.now_ms())

    def _views(self, connection: Connection, queue: str | None, limit: int) -> list[LockView]:
        now_ms = self._broker.now_ms()
        return [_view(row, now_ms) for row in self._broker.locking.listed(connection, queue, limit)]


def _view(row: Any, now_ms: int) -> LockView:
    state, name, unique = State.ABSENT, "", None
    if row.job_id is not None:
        state, name, unique = _job_of(row, now_ms)
    until = Until.WINDOW if row.until_ms is not None else until_of(unique or row.name)
    return LockView(row.queue, row.name, until, row.owner, state, name, row.since_ms, row.until_ms)


def _job_of(row: Any, now_ms: int) -> tuple[State, str, str | None]:
    """Of the owner: its state, its name and the lock its envelope carries."""
    state, _ = state_of(_Job(row), now_ms)
    try:
        envelope = envelopes.decode(payload.read_any(row.job_payload, queue=row.queue, attempts=0).envelope)
    except BadEnvelope:
        return state, "", None
    return state, envelope.name, envelope.unique


class _Job:
    """The columns of a job's row that say where it is."""

    def __init__(self, row: Any) -> None:
        self.reserved_at = row.job_reserved_at
        self.available_at = row.job_available_at
        self.delayq_shift_ms = row.job_delayq_shift_ms
