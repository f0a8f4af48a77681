"""A Redis user with few rights: each right that is missing is reported once, with the consequence."""

from collections.abc import Iterator

import pytest
import redis

from delayq.loops.mover import LONGEST_WITHOUT_HINTS
from delayq.redis.backend import RedisBackend
from delayq.settings.model import Settings, load_settings


@pytest.fixture
def settings(url: str, server: redis.Redis) -> Iterator[Settings]:
    """Settings of a user without INFO and without channels."""
    server.execute_command("ACL", "SETUSER", "narrow", "on", ">word", "~*", "+@all", "-info", "resetchannels")
    yield load_settings(url=url.replace("unix://", "unix://narrow:word@"), prefix="test")
    server.execute_command("ACL", "DELUSER", "narrow")


def test_an_eviction_policy_that_cannot_be_read_is_reported(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    RedisBackend(settings).check()
    (told,) = caplog.messages
    assert told.startswith("the eviction policy is unknown: Redis at unix://narrow:***@")
    assert told.endswith(
        "If Redis evicts keys when its memory is full, jobs are lost without an error. Allow INFO in the ACL of this "
        "user, or make sure that maxmemory-policy is noeviction and start with --allow-eviction."
    )


def test_refused_notifications_are_reported_once(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.redis.worker.hints.RECONNECT_PAUSE", 0.0)
    wakes = RedisBackend(settings).wake_ups()
    for _ in range(3):
        assert wakes.wait(0.001) == []
    (told,) = caplog.messages
    assert "refused the subscription to the channel test:wake" in told
    assert f". Without it, jobs can start up to {LONGEST_WITHOUT_HINTS:g} s late. Allow the channel in the ACL" in told


def test_refused_stop_requests_are_reported_once(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.redis.worker.hints.RECONNECT_PAUSE", 0.0)
    keeper = RedisBackend(settings).lease_keeper(["orders"])
    for _ in range(3):
        assert keeper.stop_requests() == []
    (told,) = caplog.messages
    assert "refused the subscription to the channel test:cancel" in told
    assert ". Without it, cancelled jobs that are running stop up to a third of a lease late. Allow" in told
