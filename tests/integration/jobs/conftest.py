"""A station whose registry and manager are the current ones: jobs declared in a test are dispatched and run there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.contrib.sqlalchemy_models import SqlAlchemyModels
from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.registry import use_models, using
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support.shop_tables import Base, Shop
from tests.support.station import QUEUE, Station


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)


@pytest.fixture
def station(redis_url: str) -> Iterator[Station]:
    with Station(redis_url) as station, using(station.registry):
        yield station


@pytest.fixture
def manager(station: Station) -> Iterator[Manager]:
    """The current manager. Its default connection is the station's Redis, its default queue the station's."""
    manager = make_manager(Settings(url=station.url, queue=QUEUE))
    with using_manager(manager):
        yield manager
    manager.close()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def models(station: Station, shop: Shop) -> SqlAlchemyModels:
    models = SqlAlchemyModels(Base, session=shop.session)
    use_models(models)
    return models
