"""A Redis that a Laravel application and delayq share; a key prefix for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from delayq.drivers.serving.connection import BrokerConnection
from delayq.jobs.current import current_manager
from delayq.jobs.running import LocalRunner
from delayq.manager import Manager
from delayq.settings import Settings
from tests.laravel.side import PythonSide
from tests.support.flavours import default_flavour, require
from tests.support.laravel import Laravel
from tests.support.servers import LocalServer, connect

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[LocalServer]:
    server = LocalServer(require(default_flavour()))
    server.start()
    yield server
    server.close()


@pytest.fixture
def client(shared_redis: LocalServer) -> Iterator[redis.Redis]:
    with connect(shared_redis.url) as client:
        yield client


@pytest.fixture
def app(shared_redis: LocalServer) -> Laravel:
    """The PHP side."""
    return Laravel(shared_redis.socket, f"shop{next(_numbers)}_database_")


@pytest.fixture
def make_side(shared_redis: LocalServer, app: Laravel) -> Iterator[Callable[..., PythonSide]]:
    """Makes Python sides with options of their own."""
    sides: list[PythonSide] = []

    def make(**options: object) -> PythonSide:
        table = {"driver": "laravel_redis", "url": shared_redis.url, "prefix": app.prefix, **options}
        manager = Manager(Settings(connections={"laravel": table}), LocalRunner(current_manager))
        connection = manager.connection("laravel")
        assert isinstance(connection, BrokerConnection)
        sides.append(PythonSide(manager, connection))
        return sides[-1]

    yield make
    for side in sides:
        side.close()


@pytest.fixture
def python(make_side: Callable[..., PythonSide]) -> PythonSide:
    """The Python side."""
    return make_side()
