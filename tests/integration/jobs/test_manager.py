"""Connections by name, drivers of one's own, routes and forwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQ, Job, Settings, dispatch
from delayq.core.errors import ConfigError, InvalidInput, InvalidName, JobNotFailed, JobNotFound
from delayq.core.options import Options
from delayq.core.views import Fate
from delayq.drivers.null import NullConnection
from delayq.jobs.current import current_manager, make_manager, set_manager, using_manager
from delayq.manager import Manager
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.settings.tables import ConnectionSettings
from tests.support.snapshot import word
from tests.support.station import Station


def test_connections_are_made_when_asked_for_and_once(manager: Manager, station: Station) -> None:
    assert not manager.connected("default")
    assert manager.connection() is manager.connection("default")
    assert manager.connected("default")
    assert manager.names() == ("default", "sync", "null", "deferred", "background")
    assert dispatch("x", connection="null").outcome is Fate.DROPPED
    assert station.client.queues() == []


def test_an_unknown_connection_tells_which_are_known(manager: Manager) -> None:
    with pytest.raises(ConfigError, match="There is no connection 'nope'; known are default, sync, null"):
        manager.connection("nope")


@pytest.mark.redis_prefix("delayq", "shop")
def test_connections_of_the_settings_file(tmp_path: Path, station: Station) -> None:
    (tmp_path / "delayq.toml").write_text(
        f"""
        url = "{station.url}"
        [routes]
        "report.*" = {{ connection = "reports", queue = "slow" }}
        "quick.*" = {{ connection = "reports" }}
        "order.*" = "orders"
        [forwards]
        old = "new"
        [connections.reports]
        prefix = "shop"
        queue = "rest"
        """
    )
    manager = make_manager()
    with using_manager(manager):
        where = [(ref.queue, ref.outcome) for ref in map(dispatch, ("report.daily", "quick.one", "order.close", "x"))]
        assert where == [("slow", "created"), ("rest", "created"), ("orders", "created"), ("default", "created")]
        assert dispatch("report.daily", queue="old", connection="default").queue == "new"
    assert station.client.queues() == ["default", "new", "orders"]
    names = station.connector.commands().smembers("shop:queues")
    assert sorted(map(word, names)) == ["rest", "slow"]
    with DelayQ(settings=Settings()) as q, pytest.raises(InvalidInput, match="routed to the connection 'reports'"):
        q.schedule("quick.one")
    manager.close()


def test_a_driver_of_your_own(manager: Manager) -> None:
    made: list[Any] = []

    def pigeon(name: str, given: ConnectionSettings, options: Options) -> NullConnection:
        made.append((name, dict(given.options), options.connection))
        return NullConnection(name, options)

    manager.define("air", ConnectionSettings(driver="pigeon", options={"wings": 2}))
    with pytest.raises(ConfigError, match="the driver 'pigeon'; known are redis, sync, null"):
        manager.connection("air")
    manager.extend("pigeon", pigeon)
    assert dispatch("x", connection="air").outcome is Fate.DROPPED
    assert made == [("air", {"wings": 2}, "air")]
    with pytest.raises(ConfigError, match="in use"):
        manager.define("air", ConnectionSettings())


def test_an_option_the_driver_does_not_know(manager: Manager) -> None:
    manager.define("typo", ConnectionSettings(driver="null", options={"qeue": "a"}))
    with pytest.raises(ConfigError, match="an option 'qeue' that its driver null does not know"):
        manager.connection("typo")


def test_the_default_connection_is_a_setting(station: Station) -> None:
    manager = make_manager(Settings(url=station.url, connection="null"))
    with using_manager(manager):
        assert dispatch("x").outcome is Fate.DROPPED


def test_a_connection_may_wait_for_commits(tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text('[connections.later]\ndriver = "null"\nafter_commit = true\n')
    manager = make_manager()
    with using_manager(manager):
        with pytest.raises(ConfigError, match="waits for a commit"):
            dispatch("x", connection="later")
        assert dispatch("x", connection="later", after_commit=False).outcome is Fate.DROPPED


def test_the_nearest_class_decides_a_route(manager: Manager, station: Station) -> None:
    class Report(Job):
        def handle(self) -> None: ...

    class Daily(Report): ...

    class Hourly(Daily): ...

    manager.route("Daily", queue="by-name")
    manager.route(Report, queue="reports", connection="null")
    assert (Daily().dispatch().queue, Daily().dispatch().outcome) == ("reports", Fate.DROPPED)
    manager.route(Daily, queue="daily")
    assert [kind().dispatch().queue for kind in (Report, Daily, Hourly)] == ["reports", "daily", "daily"]
    with pytest.raises(ConfigError, match="leads nowhere"):
        manager.route("x")
    with pytest.raises(InvalidName):
        manager.route("x", queue="a b")


def test_a_forward_holds_from_now_on_on_all_connections_or_one(manager: Manager) -> None:
    assert dispatch("x", queue="old").queue == "old"
    manager.forward("old", "new")
    manager.forward("other", "null-only", connection="null")
    assert dispatch("x", queue="old").queue == "new"
    assert dispatch("x", queue="other").queue == "other"
    assert dispatch("x", queue="other", connection="null").queue == "null-only"
    with pytest.raises(ConfigError, match="one is forwarded already"):
        manager.forward("new", "newer")


def test_a_job_is_found_by_the_old_name_of_its_queue_before_and_after(station: Station) -> None:
    station.client.schedule("x", id="before", queue="old", delay="1h")
    options = replace(station.options, forwards={"old": "new"})
    with Client(Connector(station.url), options) as q:
        assert q.schedule("x", id="after", queue="old", delay="1h").queue == "new"
        for job_id, place in (("before", "old"), ("after", "new")):
            info = q.get(job_id, queue="old")
            assert info is not None
            assert info.queue == place
            assert q.reschedule(job_id, queue="old", delay="2h").queue == place
            assert q.run_now(job_id, queue="old").queue == place
            with pytest.raises(JobNotFailed):
                q.retry(job_id, queue="old")
            assert q.cancel(job_id, queue="old") == "cancelled"
            assert q.cancel(job_id, queue="old") == "unknown"
        with pytest.raises(JobNotFound):
            q.run_now("nobody", queue="old")


def test_stamps_add_headers_and_what_is_said_wins(manager: Manager, station: Station) -> None:
    manager.stamp(lambda spec: {"trace": f"of {spec.name}", "by": "stamp"})
    dispatch("x", id="j", headers={"by": "me"}, queue="orders")
    envelope = station.job("j").envelope
    assert envelope is not None
    assert envelope.headers == {"trace": "of x", "by": "me"}


def test_the_manager_of_the_process(station: Station) -> None:
    mine = make_manager(Settings(url=station.url))
    set_manager(mine)
    try:
        assert current_manager() is mine
        other = make_manager(Settings(url=station.url))
        with using_manager(other):
            assert current_manager() is other
        assert current_manager() is mine
    finally:
        set_manager(None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[routes]\n"a" = { qeue = "x" }', "takes queue, connection, or both"),
        ("[routes]\na = {}", "takes queue, connection, or both"),
        ('[forwards]\na = "b"\nb = "c"', "write where it ends"),
        ("[connections.a]\nafter_commit = 1", "after_commit of the connection a is 1; use true or false"),
        ("[connections]\na = 3", "3 is no table of options for the connection a"),
        ('[connections.a]\nurl = "nope"', "connections in .* cannot be used"),
        ('connection = "a b"', "connection in .* cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "delayq.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        Settings()
