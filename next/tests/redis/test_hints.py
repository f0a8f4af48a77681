"""Subscriptions to notifications: a server that restarts, and one that hangs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.redis.connection.factory import parse_address
from delayq.redis.worker.hints import FIRST_CHECK, LONGEST_CHECK, Hints
from delayq.worker.sidecar import _wait
from tests.support.topologies import Server, hanging
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, password=None)
    yield server
    server.end()


def subscription(server: Server, scheme: str) -> Hints:
    hints = Hints(parse_address(f"{scheme}://127.0.0.1:{server.port}"), "channel", is_checked=True)
    hints.wait(0)
    assert hints.is_subscribed
    return hints


def test_a_subscription_to_one_of_several_servers_ends_if_the_server_hangs(server: Server) -> None:
    hints = subscription(server, "redis+cluster")
    with hanging(server):
        wait_until(lambda: hints.wait(5) or not hints.is_subscribed)
    wait_until(lambda: hints.wait(0.01) or hints.is_subscribed)
    server.client.publish("channel", "q 5")
    wait_until(lambda: hints.wait(0.01) == [("q", "5")])


def test_a_subscription_comes_back_however_short_the_waits_are(server: Server) -> None:
    """A supervisor waits 0 s, four times a second."""
    hints = subscription(server, "redis")
    server.end()
    wait_until(lambda: hints.wait(0) or not hints.is_subscribed)
    server.start()
    wait_until(lambda: hints.wait(0) or hints.is_subscribed)


def test_a_server_that_answers_is_asked_seldom(server: Server) -> None:
    hints = subscription(server, "redis+cluster")
    hints._check_at = 0.0
    wait_until(lambda: hints.wait(0.01) or hints._check_pause > FIRST_CHECK)
    hints._check_pause = LONGEST_CHECK
    hints._check_at = 0.0
    hints.wait(0.01)
    server.client.publish("channel", "q 5")
    wait_until(lambda: hints.wait(0.01) == [("q", "5")])
    assert hints.is_subscribed
    assert hints._check_pause in (FIRST_CHECK, 2 * FIRST_CHECK)


def test_a_subscription_follows_the_calls_of_its_process(server: Server, tmp_path: Path) -> None:
    """The primary before a failover may still answer, but the new one has the jobs."""
    other = Server(tmp_path, password=None)
    old, new = (f"redis://127.0.0.1:{one.port}" for one in (server, other))
    calls_at = [old]
    address = parse_address(f"redis+cluster://127.0.0.1:{server.port},127.0.0.1:{other.port}")
    hints = Hints(address, "channel", server=lambda: calls_at[0])
    try:
        hints.wait(0)
        for calls_at[0] in ("", address.masked, old):  # as while the sentinels are asked
            hints.wait(0)
            assert hints.is_subscribed
        calls_at[0] = new
        hints.wait(5)
        assert not hints.is_subscribed
        hints.wait(5)
        other.client.publish("channel", "q 5")
        wait_until(lambda: hints.wait(0.01) == [("q", "5")])
        assert hints.is_subscribed
    finally:
        other.end()


def test_a_subscription_does_not_follow_calls_that_are_behind(server: Server) -> None:
    hints = Hints(parse_address(f"redis+cluster://127.0.0.1:{server.port}"), "channel", server=lambda: "redis://old:1")
    for _ in range(3):
        hints.wait(0)
        assert hints.is_subscribed


def test_the_only_server_is_never_asked(server: Server) -> None:
    hints = subscription(server, "redis")
    with hanging(server):
        hints.wait(FIRST_CHECK + 1)
        assert hints.is_subscribed


class LostSubscription:
    """Wake-ups that are lost during the first wait."""

    is_subscribed = True

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        self.is_subscribed = False
        return [("a", "5")]


class TwoQueues:
    """A mover of two queues."""

    queues = frozenset(("a", "b"))


def test_when_a_subscription_is_lost_all_queues_are_looked_at_once() -> None:
    wake_ups = LostSubscription()
    assert _wait(wake_ups, TwoQueues(), 1.0) == {"a", "b"}  # type: ignore[arg-type]
    assert _wait(wake_ups, TwoQueues(), 1.0) == {"a"}  # type: ignore[arg-type]
