"""An outbox on SQLite and on PostgreSQL, and a station whose Redis its jobs go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from delayq.jobs.current import using_manager
from delayq.jobs.registry import using
from delayq.manager import Manager
from tests.support.outbox import manager_of, outbox_on
from tests.support.station import Station


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    with outbox_on(database) as engine:
        yield engine


@pytest.fixture
def station(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Station]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)
    with Station(redis_url) as station, using(station.registry):
        yield station


@pytest.fixture
def manager(station: Station) -> Iterator[Manager]:
    manager = manager_of(station.url)
    with using_manager(manager):
        yield manager
    manager.close()
