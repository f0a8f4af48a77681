"""Subscriptions to notifications: a server that restarts, and one that hangs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.redis.connection.factory import parse_address
from delayq.redis.worker.hints import Hints
from tests.support.topologies import Server
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, password=None)
    yield server
    server.end()


def test_a_subscription_comes_back_however_short_the_waits_are(server: Server) -> None:
    """A supervisor waits 0 s, four times a second."""
    hints = Hints(parse_address(f"redis://127.0.0.1:{server.port}"), "channel")
    hints.wait(0)
    assert hints.is_subscribed
    server.end()
    wait_until(lambda: hints.wait(0) or not hints.is_subscribed)
    server.start()
    wait_until(lambda: hints.wait(0) or hints.is_subscribed)
