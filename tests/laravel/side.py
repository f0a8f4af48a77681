"""Python's side of a queue of Laravel's, in the hands of a test."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.app import driver_factory
from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.outcome import DONE, GiveUp, Outcome, Release
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Consumer, Delivery, Settlement
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.serving.connection import BrokerConnection
from delayq.manager import Manager
from tests.support.waiting import wait_until


class PythonSide:
    """A producer and workers over one connection."""

    def __init__(self, manager: Manager, connection: BrokerConnection) -> None:
        self.manager = manager
        self.connection = connection
        self._open: list[Any] = []

    def push(self, name: str, data: Any = None, queue: str = "orders", **options: Any) -> JobRef:
        """One job."""
        spec = JobSpec(name=name, data=data, queue=queue, **options)
        return self.connection.schedule(spec, OnConflict.KEEP)

    def consumer(self, *queues: str) -> Consumer:
        """A worker's way to deliveries."""
        driver = driver_factory(self.manager, "laravel")()
        consumer = driver.consumer("dq:test:1:1", queues or ("orders",))
        self._open += [driver, consumer]
        return consumer

    def take(self, consumer: Consumer, count: int = 1) -> list[Delivery]:
        """Read until so many have come."""
        found: list[Delivery] = []

        def enough() -> bool:
            fetched = consumer.fetch((), count - len(found))
            assert not fetched.errors, fetched.errors
            found.extend(fetched.deliveries)
            return len(found) >= count

        wait_until(enough, timeout=30, what=f"{count} deliveries")
        return found

    def one(self, consumer: Consumer) -> Delivery:
        """The next one."""
        return self.take(consumer)[0]

    def end(self, consumer: Consumer, delivery: Delivery, outcome: Outcome = DONE) -> bool | None:
        """Settle one."""
        fetched = consumer.settle([Settlement(delivery, outcome)])
        assert not fetched.errors, fetched.errors
        return fetched.settled[0]

    def failed(self, job_id: str) -> FailedJob | None:
        """The record of a failed job."""
        make = self.connection.backend.failed
        assert make is not None
        store = make()
        try:
            return store.get(job_id)
        finally:
            store.close()

    def close(self) -> None:
        """Close everything."""
        for opened in reversed(self._open):
            opened.close()
        self.manager.close()


def envelope_of(delivery: Delivery) -> Envelope:
    """What a handler would see."""
    assert not delivery.unreadable, delivery.unreadable
    return envelopes.decode(delivery.raw)


def data_of(delivery: Delivery) -> Any:
    """The payload."""
    return msgspec.json.decode(envelope_of(delivery).data)


def again(delivery: Delivery, delay_ms: int = 0) -> Release:
    """The outcome of an attempt that failed."""
    envelope = envelope_of(delivery)
    return Release(delay_ms, envelope.attempts + 1, envelope.exceptions + 1, ValueError("once more"))


def give_up(delivery: Delivery, error: BaseException) -> GiveUp:
    """The outcome of the last attempt."""
    envelope = envelope_of(delivery)
    return GiveUp(envelope.attempts + 1, envelope.exceptions + 1, error)
