"""What jobs ask before they start: whether their key may be freed, and whether their batch was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sqlalchemy import Connection

from delayq.core.limiting import CalledOff, Question, Unlock, Unlocked, Who
from delayq.drivers.base import Claim
from delayq.drivers.database.batch_rows import BatchRows
from delayq.drivers.database.engine import Database
from delayq.drivers.database.locking import Locking
from delayq.drivers.serving.limits import NoLimits

T = TypeVar("T")
Held = Callable[[Connection, Claim], bool]


class DatabaseLimits(NoLimits):
    """`Limits` of one process. `held`: whether a reservation still stands, locked until its transaction ends."""

    lacks = "no limits"

    def __init__(self, connection: str, database: Database, rows: BatchRows, locking: Locking, held: Held) -> None:
        super().__init__(connection)
        self._database = database
        self._rows = rows
        self._locking = locking
        self._held = held

    def ask(self, question: Question[T], /) -> T:
        """Raises `Fail` for what a database counts not."""
        return cast(T, self._answer(question))

    async def aask(self, question: Question[T], /) -> T:
        """As `ask`, in a thread."""
        return await asyncio.to_thread(self.ask, question)

    def _answer(self, question: Question[Any]) -> Any:
        match question:
            case Unlock(who, digest):
                return self._database.write(lambda connection: self._unlock(connection, who, digest))
            case CalledOff(who, batch):
                return self._database.read(lambda connection: self._called_off(connection, batch, who.id))
            case _:
                return super().ask(question)

    def _called_off(self, connection: Connection, batch: str, member: str) -> bool:
        row = self._rows.find(connection, batch)
        return row is not None and self._rows.holds_back(connection, row, member)

    def _unlock(self, connection: Connection, who: Who, digest: str) -> Unlocked:
        if not self._held(connection, Claim(who.queue, who.id, who.entry)):
            return Unlocked.FENCED
        return self._locking.drop(connection, who.queue, digest, who.id)
