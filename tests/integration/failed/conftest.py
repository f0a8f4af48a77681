"""A client in the test's time, on the default flavour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from delayq.core.options import Options
from delayq.redis.connect import Connector


@pytest.fixture
def connector(redis_url: str) -> Iterator[Connector]:
    with closing(Connector(redis_url)) as connector:
        yield connector


@pytest.fixture
def options() -> Options:
    return Options(queue="orders")
