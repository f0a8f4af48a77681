"""The servers of these drivers, each started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from delayq.core.options import Options
from delayq.drivers.beanstalkd import backend as beanstalkd_backend
from delayq.drivers.beanstalkd.broker import BeanstalkdBroker
from delayq.settings.tables import ConnectionSettings
from tests.support.beanstalkd import Beanstalkd
from tests.support.sqs import Sqs, sqs


@pytest.fixture(scope="session")
def beanstalkd_of_the_suite() -> Iterator[Beanstalkd]:
    with closing(Beanstalkd()) as server:
        server.start()
        yield server


@pytest.fixture
def beanstalkd(beanstalkd_of_the_suite: Beanstalkd) -> Iterator[Beanstalkd]:
    """A server that is empty."""
    yield beanstalkd_of_the_suite
    beanstalkd_of_the_suite.empty()


@pytest.fixture
def own_beanstalkd() -> Iterator[Callable[..., Beanstalkd]]:
    """Makes servers that a test may kill."""
    servers: list[Beanstalkd] = []

    def make(*options: str) -> Beanstalkd:
        servers.append(Beanstalkd([*options]))
        servers[-1].start()
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def tubes() -> Iterator[Callable[..., BeanstalkdBroker]]:
    """Makes brokers of a port."""
    made: list[BeanstalkdBroker] = []

    def make(port: int, prefix: str | None = None, **options: Any) -> BeanstalkdBroker:
        given = ConnectionSettings(
            driver="beanstalkd", place=f"beanstalkd://127.0.0.1:{port}", prefix=prefix, options=options
        )
        broker = beanstalkd_backend("tubes", given, Options()).make()
        assert isinstance(broker, BeanstalkdBroker)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture(scope="session")
def sqs_server() -> Iterator[Sqs]:
    with sqs() as server:
        yield server
