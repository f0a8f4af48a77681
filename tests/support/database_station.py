"""As a station, on a database: a connection to its tables, handlers, and workers in processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, func, select

from delayq.app.workers import driver_factory
from delayq.core.backoff import Fixed
from delayq.core.events import Event, JobEnded
from delayq.core.outcome import Policy
from delayq.core.states import State
from delayq.core.views import JobInfo, Retried
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.drivers.serving.desk import BrokerDesk
from delayq.jobs.current import make_manager
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.settings import Settings
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.plan import Plan
from tests.support.running import Running, Said
from tests.support.station import QUEUE
from tests.support.tape import Flag, Tape, Tapes
from tests.support.waiting import wait_until

NAME = "jobs"
"""What its connection is called, which is the default one."""


class DatabaseStation:
    """Everything a test needs to dispatch jobs and have them run. Close it."""

    def __init__(self, url: str, **given: Any) -> None:
        table = {"driver": "database", "url": url}
        told = {"lease": "5s", "queue": QUEUE, "connection": NAME, "connections": {NAME: table}, **given}
        self.registry = Registry()
        self._folder = tempfile.TemporaryDirectory(prefix="dq-ledger-")
        self._tapes = Tapes(Path(self._folder.name))
        self.events: Tape[Event] = self.tape()
        self._said = Said(self.tape(), self.tape())
        with using(self.registry):
            self.manager = make_manager(Settings(**told))
        made = self.manager.connection(NAME)
        assert isinstance(made, DatabaseConnection)
        self.connection = made
        migrate(made.broker.database, made.broker.tables)
        made.broker.close()
        self.client = BrokerDesk(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self._tapes.close()
        self._folder.cleanup()

    def tape(self) -> Tape[Any]:
        """A list that handlers may append to."""
        return self._tapes.tape()

    def flag(self) -> Flag:
        """An event that handlers may set, or wait for."""
        return self._tapes.flag()

    def handles(self, name: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a handler."""
        with using(self.registry):
            job(name, **options)(function)

    def plan(self, **options: Any) -> Plan:
        """A worker's: it serves `orders` unless told otherwise."""
        given: dict[str, Any] = {
            "queues": (QUEUE,),
            "fallback": Policy(tries=3, backoff=Fixed(10)),
            "mover": False,
            "sleep_ms": 100,
        }
        listeners = [self.events.append]
        return Plan(driver_factory(self.manager, NAME), self.registry, WorkerOptions(**{**given, **options}), listeners)

    def run(self, **options: Any) -> StopReason:
        """A worker until it stops by itself; why it did."""
        return Running(self.plan(**options), self._said).join()

    def drain(self, **options: Any) -> StopReason:
        """Work until nothing is ready."""
        return self.run(**{"stop_when_empty": True, **options})

    @contextmanager
    def working(self, **options: Any) -> Iterator[Running]:
        """A worker; it is asked to stop at the end of the block unless it has."""
        running = Running(self.plan(**{**options, "mover": False}), self._said)
        try:
            yield running
        finally:
            running.stop()

    def state(self, job_id: str, queue: str = QUEUE) -> State:
        """Where a job is, as far as a database can tell of one that runs: it is nowhere."""
        info = self.client.get(job_id, queue=queue)
        return info.state if info else State.ABSENT

    def job(self, job_id: str, queue: str = QUEUE) -> JobInfo:
        """A job that must be there."""
        info = self.client.get(job_id, queue=queue)
        assert info is not None, f"{job_id} is not there"
        return info

    def until(self, job_id: str, *states: State, queue: str = QUEUE, timeout: float = 20.0) -> None:
        """Wait until a job is in one of the states."""
        wait_until(lambda: self.state(job_id, queue) in states, timeout=timeout, what=f"{job_id} is {states}")

    def until_gone(self, job_ids: Sequence[str], queue: str = QUEUE, timeout: float = 20.0) -> None:
        """Wait until none of the jobs is there any more, waiting or held."""
        rows = self.connection.broker.tables.jobs.c
        asked = select(func.count()).where(rows.queue == queue, rows.delayq_id.in_(job_ids))

        def gone() -> bool:
            return not self.connection.broker.database.read(lambda one: one.execute(asked).scalar_one())

        wait_until(gone, timeout=timeout, what=f"{len(job_ids)} jobs are gone")

    def ends(self, job_id: str) -> list[str]:
        """How the attempts of one job ended, in order."""
        return [event.outcome for event in self.events if isinstance(event, JobEnded) and event.id == job_id]

    def retry(self, job_id: str, queue: str = QUEUE) -> Retried:
        """Try a failed job again."""
        return self.client.failed().retry_one(job_id, queue=queue)

    @property
    def engine(self) -> Engine:
        """The database, as the application has it."""
        return self.connection.broker.database.engine

    def idle(self, queues: Sequence[str]) -> bool:
        """Whether nothing waits or runs in these queues."""
        depths = [self.connection.broker.depth(queue) for queue in queues]
        return not any(depth.ready or depth.delayed or depth.reserved for depth in depths)

    def said(self) -> str:
        """What the workers logged."""
        return self._said.text()
