"""Connections by name, drivers of one's own, routes and forwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQ, Job, Settings, dispatch
from delayq.core.errors import ConfigError, InvalidInput, InvalidName
from delayq.core.options import Options
from delayq.core.views import Fate
from delayq.drivers.null import NullConnection
from delayq.jobs.current import current_manager, make_manager, set_manager, using_manager
from delayq.manager import Manager
from delayq.settings.tables import ConnectionSettings
from tests.support.station import Station


def test_connections_are_made_when_asked_for_and_once(manager: Manager, station: Station) -> None:
    assert not manager.connected("default")
    assert manager.connection() is manager.connection("default")
    assert manager.connected("default")
    assert manager.names() == ("default", "sync", "null")
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
    assert sorted(map(bytes.decode, names)) == ["rest", "slow"]
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


def test_routes_by_class_hold_for_what_is_derived_and_the_nearest_wins(manager: Manager, station: Station) -> None:
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
        ("[connections]\na = 3", "3 is no table of options for the connection a"),
        ('[connections.a]\nurl = "nope"', "connections in .* cannot be used"),
        ('connection = "a b"', "connection in .* cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "delayq.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        Settings()
