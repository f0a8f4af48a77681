"""Puts jobs with a unique key into the table: the key is taken in the transaction that writes the row.

A job whose key another one holds changes nothing, and its answer names the owner. A debounced one takes the place of
the one that waits under its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, delete

from delayq.core import envelope as envelopes
from delayq.core.debounce import Quiet
from delayq.core.errors import BadEnvelope
from delayq.core.states import Answer, OnConflict, State
from delayq.core.unique import word_of
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database import payload
from delayq.drivers.database.locking import Lock, Locking
from delayq.drivers.database.placing import Placing, row_of, state_of
from delayq.drivers.database.tables import Tables


@dataclass(frozen=True, slots=True)
class KeyedPlacing:
    """`placing` for all that has no key."""

    placing: Placing
    locking: Locking
    tables: Tables

    def place(
        self, connection: Connection, items: Sequence[Item], on_conflict: OnConflict, now_ms: int
    ) -> list[JobRef]:
        """Write them in order; an answer for each."""
        refs: list[JobRef] = []
        for has_key, some in groupby(items, key=lambda item: item.lock != ""):
            if has_key:
                refs += [self._one(connection, item, on_conflict, now_ms) for item in some]
            else:
                refs += self.placing.place(connection, list(some), on_conflict, now_ms)
        return refs

    def _one(self, connection: Connection, item: Item, on_conflict: OnConflict, now_ms: int) -> JobRef:
        if item.quiet is not None:
            return self._debounced(connection, item, item.quiet, now_ms)
        there = self.placing.there(connection, item)
        if there is None or (on_conflict is OnConflict.REPLACE and there.reserved_at is None):
            owner = self.locking.take(connection, lock_of(item, now_ms), now_ms)
            if owner:
                return self._held(connection, item, owner, on_conflict, now_ms)
        [ref] = self.placing.place(connection, [item], on_conflict, now_ms)
        if there is None and ref.outcome not in (Answer.CREATED, Answer.REPLACED):
            self._look_again(connection, item)
        return ref

    def _look_again(self, connection: Connection, item: Item) -> None:
        """Somebody took the id since. The key goes with it only if that is this very job, sent twice at once."""
        row = self.placing.there(connection, item)
        if row is None or lock_in(row) != item.lock:
            self.locking.drop(connection, item.queue, item.lock, item.id)

    def _held(self, connection: Connection, item: Item, owner: str, on_conflict: OnConflict, now_ms: int) -> JobRef:
        """Another job has the key, which may have ended where a window lasts."""
        answer = Answer.CONFLICT if on_conflict is OnConflict.ERROR else Answer.KEPT
        row = self.placing.there(connection, item._replace(id=owner))
        state, due_ms = (State.ABSENT, None) if row is None else state_of(row, now_ms)
        return JobRef(owner, item.queue, state, due_ms, answer, item.name)

    def _debounced(self, connection: Connection, item: Item, quiet: Quiet, now_ms: int) -> JobRef:
        """In the place of the one that waits, as far as nobody has reserved that; its wait begins anew.

        One that runs already, with what it was given, is left alone, and this one begins a new wait.
        """
        mine = lock_of(item, now_ms)._replace(most_ms=now_ms + quiet.max_wait_ms if quiet.max_wait_ms else None)
        there: Lock | None = None
        while not self.locking.add(connection, mine):
            there = self.locking.held(connection, item.queue, item.lock)
            if there is not None:
                break
        waits = there is not None and self._taken_out(connection, item, there.owner)
        if there is not None:
            if waits and mine.most_ms is not None:
                mine = mine._replace(most_ms=there.most_ms or now_ms)
            self.locking.give(connection, mine)
        latest = now_ms + quiet.wait_ms if mine.most_ms is None else min(now_ms + quiet.wait_ms, mine.most_ms)
        due_ms = max(now_ms, latest)
        self.placing.inserted(connection, [row_of(item._replace(delay_ms=due_ms - now_ms), now_ms)])
        before, answer = (there.owner, Answer.DEBOUNCED) if waits and there else ("", Answer.CREATED)
        return JobRef(item.id, item.queue, State.SCHEDULED, due_ms, answer, item.name, before)

    def _taken_out(self, connection: Connection, item: Item, owner: str) -> bool:
        """Whether the job that had the key waited, and is gone now. One that is just being reserved is left alone."""
        asked = {"of_queue": item.queue, "of_id": owner}
        row = connection.execute(self.placing.search.with_for_update(skip_locked=True), asked).first()
        if row is None or row.reserved_at is not None:
            return False
        connection.execute(delete(self.tables.jobs).where(self.tables.jobs.c.id == row.id))
        return True


def lock_in(row: Any) -> str:
    """The unique key of the job in a row; '' for none."""
    try:
        envelope = envelopes.decode(payload.read_any(row.payload, queue=row.queue, attempts=0).envelope)
    except BadEnvelope:
        return ""
    return word_of(envelope.unique)


def lock_of(item: Item, now_ms: int) -> Lock:
    """The row of a job's key. A name that ends in a number is that of a window so many milliseconds long."""
    _, _, window = item.lock.partition(".")
    until_ms = now_ms + int(window) if window else None
    return Lock(item.queue, item.lock, item.id, until_ms, None, now_ms)
