"""What a contract test works with: a connection, workers' ends of it, and waiting without sleeping blindly."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from delayq.app import driver_factory
from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.outcome import DONE, GiveUp, Outcome, Release
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.core.views import JobRef, Retried
from delayq.drivers.base import Claim, Consumer, Delivery, Driver, Settlement, Steward
from delayq.drivers.capabilities import Keeper
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.desk import BrokerDesk
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.jobs.current import current_manager
from delayq.jobs.running import LocalRunner
from delayq.manager import Manager
from delayq.redis.client import Client
from delayq.settings import Settings
from tests.contract.backend import IT, Backend, Server
from tests.support import shelf
from tests.support.waiting import wait_until

_numbers = itertools.count(1)


def make_manager(settings: Settings) -> Manager:
    """One that knows the suite's own driver too."""
    manager = Manager(settings, LocalRunner(current_manager))
    manager.extend("shelf", shelf.backend)
    return manager


class Rig:
    """One test's. Queue names are new each time, because a backend may keep what earlier tests left."""

    def __init__(self, backend: Backend, server: Server, lease: str = "30s") -> None:
        self.given: Mapping[str, Any] = server.settings(lease=lease)
        self.backend = backend
        self.server = server
        self.can = backend.can
        self.settings = Settings(**self.given)
        self.manager = make_manager(self.settings)
        self.connection = self.manager.connection(IT)
        self.queue = self.new_queue()
        self._driver: Driver | None = None
        self._desk: BrokerDesk | None = None
        self._open: list[Any] = []

    def new_queue(self) -> str:
        """A queue nobody used before."""
        return f"q{next(_numbers)}-{time.time_ns()}"

    # -- producing

    def schedule(self, name: str = "contract.job", data: Any = None, **options: Any) -> JobRef:
        """One job in the test's queue."""
        return self.connection.schedule(self.spec(name, data, **options), OnConflict.KEEP)

    def spec(self, name: str = "contract.job", data: Any = None, **options: Any) -> JobSpec:
        """What `schedule` sends."""
        return JobSpec(name=name, data=data, **{"queue": self.queue, **options})

    # -- working

    @property
    def driver(self) -> Driver:
        """The loops' side."""
        if self._driver is None:
            self._driver = driver_factory(self.manager, IT)()
            self._open.append(self._driver)
        return self._driver

    def consumer(self, *queues: str) -> Consumer:
        """A worker of its own: another driver, and so another connection."""
        driver = driver_factory(self.manager, IT)()
        consumer = driver.consumer(f"dq:contract:{next(_numbers)}:{next(_numbers)}", queues or (self.queue,))
        self._open += [driver, consumer]
        return consumer

    def steward(self, *queues: str) -> Steward:
        """A supervisor's side, in a process that reserved nothing."""
        return self.driver.steward(queues or (self.queue,))

    def take(self, consumer: Consumer, count: int = 1, timeout: float = 20.0) -> list[Delivery]:
        """Read until so many have come."""
        found: list[Delivery] = []

        def enough() -> bool:
            self.move()
            if len(found) < count:
                found.extend(self.read(consumer, count - len(found)))
            return len(found) >= count

        wait_until(enough, timeout=timeout, what=f"{count} deliveries from {self.queue}")
        return found

    def one(self, consumer: Consumer) -> Delivery:
        """The next delivery."""
        return self.take(consumer)[0]

    def read(self, consumer: Consumer, count: int = 10) -> Sequence[Delivery]:
        """What is there now. Errors of single queues are the test's."""
        fetched = consumer.fetch((), count)
        assert not fetched.errors, fetched.errors
        return fetched.deliveries

    def nothing(self, consumer: Consumer) -> bool:
        """Whether nothing can be read, though a mover had its turn."""
        self.move()
        return not self.read(consumer)

    def move(self) -> None:
        """A mover's and a janitor's turn, where the driver asks for them."""
        if self.can.mover:
            while self.driver.promote(self.queue).moved:
                pass
            self.driver.reclaim(self.queue)

    def settle(self, consumer: Consumer, delivery: Delivery, outcome: Outcome = DONE) -> bool | None:
        """End one."""
        fetched = consumer.settle([Settlement(delivery, outcome)])
        assert not fetched.errors, fetched.errors
        return fetched.settled[0]

    def vanish(self, consumer: Consumer) -> None:
        """Let a worker die without a word: what only its connection kept ends with that, all else with the lease."""
        if self.can.keeper is Keeper.HOLDER:
            consumer.close()
            self._open.remove(consumer)

    # -- looking

    def failure_of(self, job_id: str) -> str | None:
        """The message of a failed job; None when no job of that id is among the failed."""
        if isinstance(self.connection, RedisConnection):
            info = self.connection.client.get(job_id, queue=self.queue)
            return info.failure.message if info and info.state is State.FAILED and info.failure else None
        assert isinstance(self.connection, BrokerConnection)
        make = self.connection.backend.failed
        assert make is not None, "a backend with own_failed tells of its failed jobs by a FailedStore too"
        store = make()
        try:
            kept = store.get(job_id)
            return kept.failure.message if kept else None
        finally:
            store.close()

    @property
    def desk(self) -> Client | BrokerDesk:
        """What people ask and do."""
        if isinstance(self.connection, RedisConnection):
            return self.connection.client
        assert isinstance(self.connection, BrokerConnection)
        if self._desk is None:
            self._desk = BrokerDesk(self.connection)
            self._open.append(self._desk)
        return self._desk

    @property
    def failed(self) -> Client | FailedDesk:
        """The failed jobs."""
        desk = self.desk
        return desk.failed() if isinstance(desk, BrokerDesk) else desk

    def retry(self, job_id: str) -> Retried:
        """Try a failed job again."""
        desk = self.failed
        if isinstance(desk, FailedDesk):
            return desk.retry_one(job_id, queue=self.queue)
        return desk.run(desk.failed_verbs.retry(job_id, self.queue))

    def close(self) -> None:
        """Close what was opened, newest first."""
        for opened in reversed(self._open):
            opened.close()
        self.manager.close()


def envelope_of(delivery: Delivery) -> Envelope:
    """What a handler would see."""
    return envelopes.decode(delivery.raw)


def data_of(delivery: Delivery) -> Any:
    """The payload."""
    return msgspec.json.decode(envelope_of(delivery).data)


def claim_of(delivery: Delivery) -> Claim:
    """What a supervisor knows of it."""
    return Claim(delivery.queue, delivery.id, delivery.entry)


def again(delivery: Delivery, delay_ms: int = 0, error: BaseException | None = None) -> Release:
    """The outcome of a failed attempt, or of a snooze without an error."""
    envelope = envelope_of(delivery)
    counted = int(error is not None)
    return Release(delay_ms, envelope.attempts + counted, envelope.exceptions + counted, error)


def give_up(delivery: Delivery, error: BaseException) -> GiveUp:
    """The outcome of the last attempt."""
    envelope = envelope_of(delivery)
    return GiveUp(envelope.attempts + 1, envelope.exceptions + 1, error)
