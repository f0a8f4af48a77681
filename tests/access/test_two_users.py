"""A producer and a worker that may do no more than docs/protocol.md grants them: chains and batches from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.registry import using
from delayq.settings import Settings
from tests.docs.access import USERS
from tests.integration.coordination import test_batches, test_chains
from tests.support.flavours import default_flavour
from tests.support.running import Running
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.station import QUEUE, Station
from tests.support.steps import Steps

LINES = [user.line.replace("PASSWORD", "secret") for user in USERS if user.name in ("shop-producer", "shop-worker")]
STORIES: tuple[Callable[[Station, Steps], None], ...] = (
    test_batches.test_all_succeed,
    test_batches.test_a_failure_cancels_what_has_not_started,
    test_chains.test_a_failed_link_stops_the_chain_and_tells_who_catches,
    test_chains.test_a_batch_in_a_chain_ends_before_it_goes_on,
)

UNSAID = {"client|setinfo"}
"""What redis-py says of itself where it may."""


class TwoUsers(Station):
    """Looks as somebody who may do anything; its workers are `shop-worker`."""

    @contextmanager
    def working(self, url: str = "", waits: Any = None, /, **options: Any) -> Iterator[Running]:
        with super().working(url or as_user(self.url, "shop-worker"), waits, **options) as running:
            yield running


def as_user(url: str, user: str) -> str:
    return url.replace("unix://", f"unix://{user}:secret@")


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    server = own_server(flavour=default_flavour())
    with connect(server.url) as admin:
        for line in LINES:
            admin.execute_command(*line.split())
    return server


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)


def test_chains_and_batches_with_callbacks(server: LocalServer) -> None:
    """The stories dispatch through the manager, which is `shop-producer`; the server keeps a log of what it refuses."""
    with connect(server.url) as admin:
        for story in STORIES:
            admin.flushall()
            admin.script_flush()
            manager = make_manager(Settings(url=as_user(server.url, "shop-producer"), queue=QUEUE))
            with TwoUsers(server.url) as station, using(station.registry), using_manager(manager):
                station.client.queue_set(QUEUE, shards=3)  # the other queues of the stories stay whole
                story(station, Steps(station))
                assert "forbids" not in station.said()
            manager.close()
            refused = {row["object"] for row in admin.acl_log()}
            assert refused <= UNSAID, story.__name__
