"""An application with an outbox on a database of its own, and a relay that may be told to die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.orm import Session

from delayq.contrib.outbox.relay import OutboxRelay
from delayq.drivers.outbox.table import outbox_table
from delayq.jobs.current import make_manager
from delayq.manager import Manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

TABLE = outbox_table()
STEPS = ("claiming", "claimed", "sending", "sent", "settling", "settled")
"""Where a relay may die: before its claim is committed, after it, before and after the send, and so with the end."""


@contextmanager
def outbox_on(url: str) -> Iterator[Engine]:
    """An engine of the application's, and an empty table. SQLite's driver begins as SQLAlchemy says it should."""
    engine = create_engine(url)
    TABLE.drop(engine, checkfirst=True)
    TABLE.create(engine)
    yield engine
    engine.dispose()


def manager_of(redis_url: str) -> Manager:
    """Jobs go to the outbox unless they say otherwise; a relay sends them to that Redis."""
    manager = make_manager(Settings(url=redis_url, queue="orders", connection="outbox"))
    manager.define("outbox", ConnectionSettings(driver="outbox"))
    return manager


def rows(engine: Engine) -> list[Any]:
    """What lies in the outbox."""
    with Session(engine) as session:
        return list(session.execute(select(TABLE).order_by(TABLE.c.seq)))


class DyingRelay(OutboxRelay):
    """Kills its own process when it comes to `step` for the `number`th time."""

    def __init__(self, database: str, manager: Manager, step: str, number: int) -> None:
        super().__init__(database, manager, every_s=0.01)
        self._step = step
        self._left = number
        self._place = ""
        event.listen(self.store.database.engine, "commit", lambda connection: self._reach(self._place))

    def _reach(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

    def _turn(self) -> int:
        self._place = "claiming"
        return super()._turn()

    def _next(self) -> int:
        if self._place == "claiming":
            self._reach("claimed")
        return super()._next()

    def _send(self, batch: Any) -> Any:
        self._place = ""
        self._reach("sending")
        refused = super()._send(batch)
        self._reach("sent")
        self._place = "settling"
        return refused

    def _done(self, batch: Any) -> None:
        self._place = ""
        self._reach("settled")
        super()._done(batch)


@contextmanager
def dying_relay(database: str, redis_url: str, step: str, number: int) -> Iterator[Any]:
    """A relay in a process of its own."""

    def run() -> None:
        relay = DyingRelay(database, manager_of(redis_url), step, number)
        while True:
            relay.sleep(relay.run_once())

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def drained(database: str, manager: Manager) -> int:
    """What a relay sends that runs once."""
    with closing(OutboxRelay(database, manager)) as relay:
        return relay.drain()
