"""The engine on a server: `engine` on the default flavour, `each_engine` on every one."""

from __future__ import annotations

import pytest
import redis

from delayq.core.options import Options
from delayq.redis.calls.call import Scope
from tests.support.engine import QUEUE, START, Engine


@pytest.fixture
def engine(redis_client: redis.Redis) -> Engine:
    return Engine(redis_client)


@pytest.fixture
def each_engine(each_redis_client: redis.Redis) -> Engine:
    return Engine(each_redis_client)


@pytest.fixture
def scope() -> Scope:
    """Where calls go that are only looked at."""
    return Scope(Options(), QUEUE, START)
