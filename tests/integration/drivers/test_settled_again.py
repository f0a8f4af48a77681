"""What is settled twice, because nobody heard that it worked, and what was reserved by another one meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delayq.core.errors import OutcomeUnknown
from delayq.core.options import Options
from delayq.core.outcome import GiveUp
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.base import Claim, Delivery, Settlement
from delayq.drivers.broker import Act, Broker, Waiting
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.drivers.migrating.ends import Stays
from delayq.drivers.migrating.migration import Migration
from delayq.drivers.migrating.reserving_source import ReservingSource
from delayq.drivers.migrating.taking import Taking
from delayq.drivers.migrating.targets import BrokerTarget
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.driver import BrokerDriver
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings
from tests.support import shelf

QUEUE = "orders"


class Lossy:
    """A broker whose first settlement works, and whose answer is lost."""

    def __init__(self, inner: Broker) -> None:
        self._inner = inner
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """Once unheard."""
        answers = self._inner.settle(acts)
        if not self.lost:
            self.lost = True
            raise OutcomeUnknown("The reply was lost.")
        return answers


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    given = ConnectionSettings(driver="shelf", options={"folder": str(tmp_path)})
    return shelf.backend("shelf", given, Options())


def queued(backend: Backend, count: int = 1) -> list[str]:
    connection = BrokerConnection("shelf", backend, Options())
    return [connection.schedule(JobSpec(name="act", queue=QUEUE), OnConflict.KEEP).id for _ in range(count)]


def given_up() -> GiveUp:
    return GiveUp(1, 1, ValueError("no"))


def failed_ids(backend: Backend) -> list[str]:
    assert backend.failed is not None
    return [job.id for job in backend.failed().page().jobs]


def settled(driver: BrokerDriver, delivery: Delivery) -> Any:
    """As a worker does it, which settles what it is not sure of once more."""
    consumer = driver.consumer("dq:here:1:x", [QUEUE])
    with pytest.raises(OutcomeUnknown):
        consumer.settle([Settlement(delivery, given_up())])
    return consumer.settle([Settlement(delivery, given_up(), resent=True)]).settled


def test_a_failure_whose_settling_was_not_heard_of_stays_on_record(backend: Backend) -> None:
    ids = queued(backend)
    broker = Lossy(backend.make())
    driver = BrokerDriver("shelf", backend, broker, Options())
    [delivery] = broker.reserve(QUEUE, 1)
    assert settled(driver, delivery) == [False]
    assert failed_ids(backend) == ids


def test_also_by_a_supervisor(backend: Backend) -> None:
    ids = queued(backend)
    broker = Lossy(backend.make())
    driver = BrokerDriver("shelf", backend, broker, Options())
    [delivery] = broker.reserve(QUEUE, 1)
    steward, claim = driver.steward([QUEUE]), Claim(delivery.queue, delivery.id, delivery.entry)
    with pytest.raises(OutcomeUnknown):
        steward.settle([(claim, given_up())])
    steward.settle([(claim, given_up())])
    assert failed_ids(backend) == ids


def test_one_that_was_never_ours_leaves_no_record(backend: Backend) -> None:
    queued(backend)
    broker = backend.make()
    driver = BrokerDriver("shelf", backend, broker, Options())
    [delivery] = broker.reserve(QUEUE, 1)
    broker.give_back([Claim(delivery.queue, delivery.id, delivery.entry)], vanished=False)
    assert driver.consumer("dq:here:1:x", [QUEUE]).settle([Settlement(delivery, given_up())]).settled == [False]
    assert failed_ids(backend) == []


class Accepting:
    """A target that takes all, while something happens at the source."""

    remembers = False

    def __init__(self, happens: Any) -> None:
        self._happens = happens

    def ready(self, queue: str) -> None:
        """It is."""

    def refuses(self, queue: str, job: Any) -> str:
        """Nothing."""
        return ""

    def take(self, queue: str, lot: str, jobs: Sequence[Any], taking: Taking, *, again: bool) -> None:
        """All of them."""
        self._happens()
        for place in range(len(jobs)):
            taking.there(place)

    def settled(self, queue: str, lot: str, jobs: Sequence[Any]) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class Watched(ReservingSource):
    """One whose lots are known."""

    seen: list[str]

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """And write it down."""
        self.seen.append(lot)
        return super().set_aside(queue, lot, count, stays)


def test_a_job_that_came_back_while_it_was_moved_is_named(backend: Backend) -> None:
    ids = queued(backend, 2)
    source, there = Watched(backend.make()), backend.make()
    source.seen = []

    def one_comes_back() -> None:
        [first, _] = source.lot(QUEUE, source.seen[0])
        there.give_back([Claim(QUEUE, first.id, first.entry)], vanished=True)
        [taken] = there.reserve(QUEUE, 1)
        assert taken.id == ids[0]

    found = Migration(source, Accepting(one_comes_back), lambda told: None, lambda: 0).run(QUEUE, QUEUE)
    assert (found.moved, found.doubled, found.agrees) == (2, [ids[0]], False)


class Dying(ReservingSource):
    """Of a run that ends when its jobs have arrived, before they are dropped here."""

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Not any more."""
        raise KeyboardInterrupt


def test_what_a_dead_run_had_sent_is_known_there(backend: Backend, tmp_path: Path) -> None:
    ids = queued(backend, 2)
    settings = Settings(connections={"lite": {"driver": "database", "url": f"sqlite:///{tmp_path / 'jobs.db'}"}})
    with closing(make_manager(settings)) as manager:
        connection = manager.connection("lite")
        assert isinstance(connection, DatabaseConnection)
        migrate(connection.broker.database, connection.broker.tables)
        target = BrokerTarget(connection)
        with pytest.raises(KeyboardInterrupt):
            Migration(Dying(backend.make()), target, lambda told: None, lambda: 0).run(QUEUE, QUEUE)

        found = Migration(ReservingSource(backend.make()), target, lambda told: None, lambda: 0).run(QUEUE, QUEUE)

        assert (found.moved, found.refused, found.agrees) == (2, {}, True)
        assert backend.make().depth(QUEUE).ready == 0
        assert sorted(one.id for one in connection.broker.reserve(QUEUE, 9)) == sorted(ids)
