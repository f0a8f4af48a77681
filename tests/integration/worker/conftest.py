"""A station on a server, and rule 1 checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, Protocol

import pytest
import redis

from tests.support.rule_one import broken
from tests.support.servers import connect
from tests.support.snapshot import word
from tests.support.station import Station


class MakeStation(Protocol):
    """What the fixture `stations` gives."""

    def __call__(self, url: str, **options: Any) -> Station: ...


@pytest.fixture
def stations() -> Iterator[MakeStation]:
    """Makes stations on servers of the test's own."""
    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(closing(Station(url, **options)))


@pytest.fixture
def station(redis_url: str, stations: MakeStation, request: pytest.FixtureRequest) -> Iterator[Station]:
    """A station on the shared server. `@pytest.mark.station(lease_ms=1_000)` sets its options."""
    marker = request.node.get_closest_marker("station")
    made = stations(redis_url, **(marker.kwargs if marker else {}))
    yield made
    with connect(redis_url) as client:
        assert unsound(client, made) == []


def unsound(client: redis.Redis, station: Station) -> list[str]:
    """What is wrong with the queues a test leaves behind."""
    queues = [word(name) for name in client.smembers(f"{station.options.prefix}:queues")]
    return [f"{queue}: {wrong}" for queue in queues for wrong in broken(client, station.keys(queue))]
