"""The relay: sends what applications wrote to an outbox in their own transactions.

    relay = OutboxRelay("postgresql://shop@localhost/shop", manager)
    Loop(relay).start()             in a thread of one's own process
    relay.drain()                   all that is there, once

Each job is made exactly once, whatever dies: a row is there if and only if its transaction was committed, a batch is
decided before it is sent, it is sent under one token, and deleted after the answer.

Any number of relays may run. One alone keeps the order of the rows within a queue; on SQLite there is only one at a
time, the others stand by.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delayq.contrib.outbox.alone import Alone
from delayq.contrib.outbox.database import Database
from delayq.contrib.outbox.judging import ready
from delayq.contrib.outbox.store import Batch, Lag, OutboxStore
from delayq.core.durations import format_duration
from delayq.core.errors import BackendError, ConfigError, Conflict, DelayqError
from delayq.core.options import Options
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.outbox.row import TABLE
from delayq.drivers.redis_connection import RedisConnection
from delayq.loops.pauses import Pauses
from delayq.loops.troubles import Troubles
from delayq.manager import Manager
from delayq.redis.calls.refusals import refusal

log = logging.getLogger("delayq.relay")

SURE_MS: Final = 6 * 86_400_000
"""How long a batch may lie between two sends; its token is kept a day longer."""

REPORT_S: Final = 10.0
BATCHES: Final = 20
"""Sent between two claims."""

Place = tuple[str, str]
"""A connection, and a queue."""


@dataclass(slots=True)
class _Trouble:
    """A place where jobs cannot be sent just now."""

    pauses: Pauses
    until: float = 0.0


class OutboxRelay:
    """A role for `Loop`. `every_s` is how long it waits between two looks at an empty table.

    `told` hears every ten seconds how many jobs were sent so far, and the `Lag`; without it the log does.
    Raises `ConfigError` for a database it cannot know.
    """

    name = "relay"

    def __init__(
        self,
        database: str,
        manager: Manager,
        *,
        table: str = TABLE,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        told: Callable[[int, Lag], None] | None = None,
    ) -> None:
        self.store = OutboxStore(Database(database), table)
        self._manager = manager
        self._every_s = every_s
        self._clock = clock
        self._told = told
        self._look_at = float("-inf")
        self._troubles = Troubles(log)
        self._places: dict[Place, _Trouble] = {}
        file = self.store.database.file
        self._alone = None if file is None else Alone(file)
        self._stood_by = False
        self._report_at = float("-inf")
        self._reported = self.sent = 0

    def run_once(self) -> float:
        """Claim and send what is there; the seconds until the next look."""
        if (wait_s := self._look_at - self._clock()) > 0:
            return wait_s
        moved = self._may_work() and self._turn() > 0
        self._report()
        self._look_at = self._clock() + (0.0 if moved else self._every_s)
        return max(0.0, self._look_at - self._clock())

    def drain(self) -> int:
        """Send all that is there, once; how many jobs went.

        Raises `Conflict` while another relay works on an SQLite database, `BackendError` when some could not be sent.
        """
        if not self._may_work():
            raise Conflict(
                f"Another relay works on {self.store.database.where}.", hint="Stop it first, or let it work."
            )
        before = self.sent
        while self._turn():
            pass
        if self._places:
            where = ", ".join(f"{queue} over {connection}" for connection, queue in self._places)
            raise BackendError(f"Jobs could not be sent to {where}.", hint="They stay in the outbox; see the log.")
        return self.sent - before

    def lag(self) -> Lag:
        """How far behind it is."""
        return self.store.lag()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the connections to the database; those of the manager are its own."""
        self.store.database.close()
        if self._alone is not None:
            self._alone.give_back()

    def _may_work(self) -> bool:
        if self._alone is None or self._alone.take():
            return True
        if not self._stood_by:
            self._stood_by = True
            log.info("another relay works on %s; this one stands by", self.store.database.where)
        return False

    def _turn(self) -> int:
        """One claim, and a number of batches, so that a relay that is asked to stop does; how many rows were moved."""
        claimed = self.store.claim(self._options_of)
        for job, why in claimed.refused.items():
            log.warning("%s was set aside: %s", _sayable(job), why)
        moved = claimed.rows
        for _ in range(BATCHES):
            rows = self._next()
            if not rows:
                break
            moved += rows
        return moved

    def _next(self) -> int:
        """Send the oldest batch that can be sent; how many rows it had. One that cannot be waits, and others go on."""
        tried: list[Batch] = []

        def send(batch: Batch) -> Mapping[int, str]:
            tried.append(batch)
            return self._send(batch)

        while True:
            now = self._clock()
            skip = [place for place, trouble in self._places.items() if trouble.until > now]
            try:
                batch = self.store.take(send, skip)
            except DelayqError as error:
                if not tried:
                    raise  # the database itself
                self._note(tried.pop(), error)
                continue
            if batch is not None:
                self._done(batch)
            return 0 if batch is None else len(batch.rows)

    def _send(self, batch: Batch) -> Mapping[int, str]:
        """One script call; the rows that were refused, and why."""
        if batch.age_ms > SURE_MS:
            days = batch.age_ms // 86_400_000
            why = f"It may have been sent {days} days ago, and nobody knows any more. A retry sends it again."
            refused = {row.seq: why for row in batch.rows}
        else:
            on_conflict = OnConflict(batch.on_conflict)
            refs = self._connection(batch.connection).carry(ready(batch.rows), on_conflict, batch.token)
            refused = dict(_refusals(batch, refs))
        for row in batch.rows:
            if row.seq in refused:
                log.warning("%s %s was set aside: %s", row.name, row.id, refused[row.seq])
        self.sent += len(batch.rows) - len(refused)
        return refused

    def _done(self, batch: Batch) -> None:
        """It is deleted; what is left of it in Redis may go soon."""
        self._places.pop((batch.connection, batch.queue), None)
        try:
            self._connection(batch.connection).carried(batch.queue, batch.token)
        except DelayqError as error:
            self._troubles.tell(error, f"queue {batch.queue}")  # its token goes after a week

    def _note(self, batch: Batch, error: DelayqError) -> None:
        """Jobs for this place wait a little longer each time; others go on."""
        place = (batch.connection, batch.queue)
        trouble = self._places.setdefault(place, _Trouble(Pauses()))
        trouble.until = self._clock() + trouble.pauses.next_s()
        self._troubles.tell(error, f"queue {batch.queue} over {batch.connection}")

    def _report(self) -> None:
        """Every ten seconds, when something was sent or waits."""
        if self._clock() < self._report_at:
            return
        lag, self._report_at = self.store.lag(), self._clock() + REPORT_S
        if self._told is not None:
            self._told(self.sent, lag)
        elif self.sent != self._reported or lag.waiting:
            behind = f"{lag.waiting} wait, the oldest for {format_duration(lag.oldest_ms)}"
            log.info("%d jobs sent so far; %s; %d set aside", self.sent, behind, lag.refused)
        self._reported = self.sent

    def _options_of(self, name: str) -> Options:
        self._connection(name)
        return self._manager.options_of(name)

    def _connection(self, name: str) -> RedisConnection:
        connection = self._manager.connection(name)
        if not isinstance(connection, RedisConnection):
            raise ConfigError(f"The connection {name!r} leads to no Redis, so no relay can send over it.")
        return connection


def _refusals(batch: Batch, refs: Sequence[JobRef]) -> Iterator[tuple[int, str]]:
    for row, ref in zip(batch.rows, refs, strict=True):
        owner = "" if ref.id == row.id else ref.id
        if isinstance(ref.outcome, Answer) and (error := refusal(ref.outcome, row.id, row.queue, owner=owner)):
            yield row.seq, str(error)


def _sayable(name: str) -> str:
    """What UTF-8 cannot carry, escaped: a row may hold anything, and a log may not."""
    return name.encode("utf-8", "backslashreplace").decode()
