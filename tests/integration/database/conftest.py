"""Each kind of database, with tables that nobody has used yet, and Laravel's own side of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from delayq.core.options import Options
from delayq.drivers.database.backend import place_of
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.engine import Database
from delayq.drivers.database.tables import tables
from delayq.jobs.current import using_manager
from delayq.jobs.registry import using
from delayq.settings.tables import ConnectionSettings
from tests.support.database_station import DatabaseStation
from tests.support.laravel_tables import Laravel
from tests.support.steps import Steps

LEASE_MS = 30_000


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of this run."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('lite') / 'jobs.db'}"
    return str(request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[request.param]))


@pytest.fixture
def url(server_url: str) -> str:
    """The same, empty."""
    emptied(server_url)
    return server_url


@pytest.fixture
def lite(tmp_path: Path) -> str:
    """A file of the test's own, for what is the same on every database."""
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine of the application's."""
    with closing(Database(url)) as database:
        yield database.engine


@pytest.fixture
def laravel(engine: Engine) -> Laravel:
    """Laravel, which has made its tables."""
    application = Laravel(engine)
    application.migrate()
    return application


def emptied(url: str) -> None:
    """Drop the tables of earlier tests."""
    with closing(Database(url)) as database, database.engine.begin() as connection:
        for table in (each.name for each in tables().all):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))


def broker_on(url: str, *, lease_ms: int = LEASE_MS, **given: object) -> DatabaseBroker:
    """The driver's side. `given` are options of the connection."""
    settings = ConnectionSettings(driver="database", place=url, options=given)
    return place_of("jobs", settings, Options(lease_ms=lease_ms)).open()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)


on_sqlite = pytest.mark.parametrize("server_url", ["sqlite"], indirect=True)
"""For what is the same on every database."""


@pytest.fixture
def ledger(bare: None, server_url: str) -> Iterator[DatabaseStation]:
    """A connection to empty tables, on each kind of database; what is declared is dispatched and run there."""
    with DatabaseStation(server_url) as ledger, using(ledger.registry), using_manager(ledger.manager):
        with closing(Database(server_url)) as database, database.engine.begin() as connection:
            for table in tables().all:
                connection.execute(table.delete())
        yield ledger


@pytest.fixture
def steps(ledger: DatabaseStation) -> Steps:
    """Links and members that write down that they ran."""
    return Steps(ledger)
