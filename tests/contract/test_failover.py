"""The failover: the first connection that takes a job, told once, and never a second copy of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError, InvalidInput, OutcomeUnknown
from delayq.core.queue_events import QueueFailedOver
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.redis_connection import RedisConnection
from delayq.jobs.current import make_manager
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support.proxy import Proxy
from tests.support.servers import OwnServer

AWAY = "unix:///tmp/delayq-nobody-is-here.sock"


@pytest.fixture
def told() -> Iterator[list[QueueFailedOver]]:
    """What listeners heard."""
    heard: list[QueueFailedOver] = []
    with using(Registry()) as registry:
        registry.events.listen(QueueFailedOver, heard.append)
        yield heard


@pytest.fixture
def handlers(told: list[QueueFailedOver]) -> None:
    """The registry that listens is the one that is asked."""


def over(first: str, second: str, **more: Any) -> Manager:
    """A failover from one Redis to another."""
    table = {
        "safe": {"driver": "failover", "to": ["first", "second"], **more},
        "first": {"url": first},
        "second": {"url": second},
    }
    return make_manager(Settings(connections=table))


def send(manager: Manager, data: Any = None) -> str:
    """Which connection took it."""
    ref = manager.connection("safe").schedule(JobSpec(name="a", data=data), OnConflict.KEEP)
    return ref.connection


def waiting(manager: Manager, name: str) -> list[Any]:
    """The payloads that wait there."""
    connection = manager.connection(name)
    assert isinstance(connection, RedisConnection)
    return [info.data for info in connection.client.iter_jobs("ready")]


def test_the_first_that_works_takes_the_job_and_it_is_told_once(
    own_server: OwnServer, told: list[QueueFailedOver]
) -> None:
    first, second = own_server(), own_server()
    manager = over(first.url, second.url, rest="50ms")
    assert send(manager, 1) == "first"
    first.kill()
    assert [send(manager, 2), send(manager, 3)] == ["second", "second"]
    assert [(event.connection, event.failed, event.to) for event in told] == [("safe", "first", "second")]
    assert isinstance(told[0].error, BackendUnavailable)
    first.start()
    while send(manager) != "first":
        """It rests a moment."""
    assert [data for data in waiting(manager, "second") if data is not None] == [2, 3]
    manager.close()


async def test_awaited_and_raw_jobs_too(redis_url: str, told: list[QueueFailedOver]) -> None:
    manager = over(AWAY, redis_url)
    safe = manager.connection("safe")
    one = await safe.aschedule(JobSpec(name="a", data=1), OnConflict.KEEP)
    two, three = await safe.aschedule_many([JobSpec(name="a", data=2), JobSpec(name="a", data=3)], OnConflict.KEEP)
    raw = b'{"v":1,"id":"four","name":"a","queue":"default","data":4,"attempts":0,"created_ms":0}'
    four, five = await safe.apush_raw(raw), safe.push_raw(raw.replace(b"four", b"five"))
    assert {ref.connection for ref in (one, two, three, four, five)} == {"second"}
    assert waiting(manager, "second") == [1, 2, 3, 4, 4]
    assert len(told) == 1
    await manager.aclose()
    manager.close()


def test_when_none_works_the_error_is_the_last_one_s(told: list[QueueFailedOver]) -> None:
    manager = over(AWAY, AWAY)
    with pytest.raises(BackendUnavailable):
        send(manager)
    assert told == []
    manager.close()


def test_a_job_whose_reply_was_lost_is_sent_nowhere_else(
    own_server: OwnServer, redis_url: str, told: list[QueueFailedOver]
) -> None:
    """It is stored behind the proxy, which keeps the answers to itself; a second copy would run beside it."""
    server = own_server()
    with Proxy(Path(server.socket)) as proxy:
        manager = over(proxy.url, redis_url)
        assert [send(manager, 0), send(manager, 0)] == ["first", "first"]  # what it asks once, it has asked by then
        proxy.swallow(ever=True)
        with pytest.raises(OutcomeUnknown):
            send(manager, 1)
        proxy.heal()
        assert waiting(manager, "second") == []
        assert told == []
        manager.close()


def test_what_is_wrong_is_wrong_everywhere(redis_url: str, told: list[QueueFailedOver]) -> None:
    manager = over(redis_url, AWAY)
    with pytest.raises(InvalidInput):
        manager.connection("safe").schedule(JobSpec(name="a b"), OnConflict.KEEP)
    assert told == []
    manager.close()


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        (["sync", "default"], "leads to 'sync', whose driver sync keeps no jobs"),
        (["default", "null"], "leads to 'null', whose driver null keeps no jobs"),
        (["default", "safe"], "leads to 'safe', whose driver failover keeps no jobs"),
        (["default"], "needs at least two others"),
        ("default", "to of the connection 'safe'"),
        (["default", "nowhere"], "There is no connection 'nowhere'"),
    ],
)
def test_it_never_falls_back_to_what_keeps_nothing(to: Any, sentence: str) -> None:
    manager = make_manager(Settings(connections={"safe": {"driver": "failover", "to": to}}))
    with pytest.raises(ConfigError, match=sentence):
        manager.connection("safe")


def test_no_worker_serves_it() -> None:
    manager = over(AWAY, AWAY)
    with pytest.raises(ConfigError, match="No worker can serve the connection 'safe'"):
        manager.backend("safe")
    manager.close()
