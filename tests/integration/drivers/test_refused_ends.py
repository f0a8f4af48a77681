"""An end that a backend refuses for good: it keeps no other from being settled, and is let go after a while."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delayq.app.desks import failed_of
from delayq.core.errors import BackendError, BackendUnavailable
from delayq.core.options import Options
from delayq.core.outcome import Ack, GiveUp
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.base import Claim, Settlement
from delayq.drivers.broker import Act, Broker
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.drivers.serving.acts import Acts
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.driver import BrokerDriver
from delayq.drivers.serving.settling import REFUSED_S, REFUSED_TRIES, End, Settled, Settling
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings
from tests.support import shelf
from tests.support.fakes import Clock

QUEUE = "orders"


class Choosy:
    """A broker that refuses the end of some jobs, whatever it is asked with, or is away for them."""

    def __init__(self, inner: Broker) -> None:
        self._inner = inner
        self.refused: set[str] = set()
        self.away: set[str] = set()
        self.asked: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """As its own, unless one of them is refused."""
        self.asked.append(len(acts))
        ids = {act.claim.id for act in acts}
        if ids & self.refused:
            raise BackendError("There is no room in its row.")
        if ids & self.away:
            raise BackendUnavailable("Nobody is there.")
        return self._inner.settle(acts)


class Case:
    """Six jobs that have ended; the first is refused."""

    def __init__(self, folder: Path) -> None:
        backend = shelf.backend("shelf", ConnectionSettings(driver="shelf", options={"folder": str(folder)}), Options())
        connection = BrokerConnection("shelf", backend, Options())
        for _ in range(6):
            connection.schedule(JobSpec(name="act", queue=QUEUE), OnConflict.KEEP)
        self.clock, self.broker = Clock(), Choosy(backend.make())
        given = self.broker.reserve(QUEUE, 6)
        self.ends = [End(Claim(QUEUE, one.id, one.entry), one.raw, Ack()) for one in given]
        self.broker.refused = {given[0].id}
        acts = Acts("shelf", backend.capabilities, self.broker.dump)
        self.settling = Settling(self.broker, acts, backend.failed, self.clock)

    def settle(self, *numbers: int) -> Settled:
        return self.settling.settle([self.ends[n] for n in numbers])


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_it_is_tried_by_itself_and_keeps_no_other_from_being_settled(case: Case) -> None:
    first = case.settle(0, 1, 2)
    assert first.answers == [None, True, True]
    assert [str(error) for error in first.errors] == ["There is no room in its row."]
    case.broker.asked.clear()
    assert case.settle(0, 3, 4, 5).answers == [None, True, True, True]
    assert case.broker.asked == [3, 1], "the others together, and it alone"


def test_it_is_let_go_and_delivered_again(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    refused = case.ends[0].claim
    for _ in range(REFUSED_TRIES + 3):
        assert case.settle(0).answers == [None]
    case.clock.now += REFUSED_S
    with caplog.at_level(logging.ERROR, "delayq.worker"):
        last = case.settle(0, 1)
    assert (last.answers, last.errors) == ([False, True], [])
    [said] = caplog.messages
    assert f"job {refused.id} of queue orders" in said
    assert "There is no room in its row." in said
    assert "starts again when its lease has run out" in said
    assert case.broker.envelope(refused), "it is still there"


def test_few_tries_are_not_enough_however_long_they_took(case: Case) -> None:
    for _ in range(REFUSED_TRIES - 1):
        assert case.settle(0).answers == [None]
        case.clock.now += REFUSED_S
    case.broker.refused.clear()
    assert case.settle(0).answers == [True]


def test_what_was_settled_before_the_backend_went_away_is_known(case: Case) -> None:
    assert case.settle(0).answers == [None]
    case.broker.refused, case.broker.away = set(), {case.ends[0].claim.id}
    found = case.settle(0, 1, 2)
    assert found.answers == [None, True, True]
    assert [type(error) for error in found.errors] == [BackendUnavailable]
    with pytest.raises(BackendUnavailable):
        case.settle(0)


def test_a_worker_on_a_database_goes_on_beside_it(tmp_path: Path) -> None:
    """A row that its database does not let go of, as one that a trigger or another table holds on to."""
    file = tmp_path / "jobs.db"
    settings = Settings(connections={"lite": {"driver": "database", "url": f"sqlite:///{file}"}})
    with closing(make_manager(settings)) as manager:
        connection = manager.connection("lite")
        assert isinstance(connection, DatabaseConnection)
        migrate(connection.broker.database, connection.broker.tables)
        ids = [connection.schedule(JobSpec(name="act", queue=QUEUE), OnConflict.KEEP).id for _ in range(3)]
        with closing(sqlite3.connect(file)) as plain:
            plain.execute(
                "CREATE TRIGGER held BEFORE DELETE ON jobs WHEN OLD.id = 1 BEGIN SELECT RAISE(ABORT, 'held'); END"
            )
        driver = BrokerDriver("lite", connection.backend, connection.backend.make(), Options())
        with closing(driver), closing(driver.consumer("dq:here:1:x", [QUEUE])) as consumer:
            given = consumer.fetch([], 3).deliveries
            done = consumer.settle([Settlement(one, Ack()) for one in given])
            assert sorted(one.id for one in given) == sorted(ids)
            assert [ours for one, ours in zip(given, done.settled, strict=True) if one.id != ids[0]] == [True, True]
            assert len(done.errors) == 1


def test_a_failed_job_of_a_table_says_how_often_it_was_tried(tmp_path: Path) -> None:
    settings = Settings(connections={"lite": {"driver": "database", "url": f"sqlite:///{tmp_path / 'jobs.db'}"}})
    with closing(make_manager(settings)) as manager:
        connection = manager.connection("lite")
        assert isinstance(connection, DatabaseConnection)
        migrate(connection.broker.database, connection.broker.tables)
        connection.schedule(JobSpec(name="act", queue=QUEUE), OnConflict.KEEP)
        driver = BrokerDriver("lite", connection.backend, connection.backend.make(), Options())
        with closing(driver), closing(driver.consumer("dq:here:1:x", [QUEUE])) as consumer:
            [given] = consumer.fetch([], 1).deliveries
            assert consumer.settle([Settlement(given, GiveUp(3, 3, ValueError("no")))]).settled == [True]
        desk = failed_of(settings, "lite")
        assert desk is not None
        with closing(desk):
            [info] = desk.iter_failed(QUEUE)
        assert (info.attempts, info.failure and info.failure.attempt) == (3, 3)
