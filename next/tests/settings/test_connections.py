"""The connection that `connection` chooses: clients, managers and workers agree about it."""

from pathlib import Path

import pytest
import redis

from delayq import DelayQ, InvalidInput, JobSpec, dispatch, using_manager
from delayq.core.declared import SendOptions, declarations
from delayq.core.errors import ConfigError
from delayq.manager import Manager
from delayq.settings.model import load_settings


@pytest.fixture
def shop(folder: Path, url: str) -> Path:
    """A project with a connection of its own beside the application's, on the same server."""
    (folder / "delayq.toml").write_text(
        f'url = "{url}"\nprefix = "own"\n[connections.reports]\nprefix = "reports"\nqueue = "slow"\n'
    )
    return folder


def test_a_client_uses_the_chosen_connection(shop: Path, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    with DelayQ() as client:
        assert client.schedule("n", delay="1h").queue == "default"
    monkeypatch.setenv("DELAYQ_CONNECTION", "reports")
    with DelayQ() as client:
        assert client.schedule("n", delay="1h").queue == "slow"
    with DelayQ(prefix="given") as client:
        assert client.schedule("n", delay="1h").queue == "slow"
    assert sorted(server.keys("*:queues")) == ["given:queues", "own:queues", "reports:queues"]


def test_a_worker_serves_the_queue_that_jobs_are_sent_to(shop: Path) -> None:
    manager = Manager(load_settings(connection="reports"))
    connection, queue = manager.destination("order.close")
    assert (connection, queue) == (manager.connection(), "slow")
    assert manager.connection().settings.queue == "slow"


def test_a_connection_without_a_table_is_refused(shop: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        DelayQ(settings=load_settings(connection="nope").chosen())
    assert (str(refused.value), refused.value.exit_code) == (
        "Unknown connection 'nope'. Known connections: reports. "
        "To add it, write a table [connections.nope] in delayq.toml.",
        2,
    )


@pytest.fixture
def routed(shop: Path) -> Path:
    """The same project with routes to a queue, to the own connection, and to another one."""
    with (shop / "delayq.toml").open("a") as file:
        file.write(
            '[routes]\n"order.*" = "orders"\n"report.*" = {queue = "big", connection = "reports"}\n'
            '"mail.*" = {connection = "reports"}\n'
        )
    return shop


def test_a_client_follows_routes(routed: Path, server: redis.Redis) -> None:
    with DelayQ() as client:
        assert client.schedule("order.close", delay="1h").queue == "orders"
        assert client.schedule("order.close", delay="1h", queue="said").queue == "said"
        refs = client.schedule_many([JobSpec(name=name, delay="1h") for name in ("order.close", "other")])
        assert [ref.queue for ref in refs] == ["orders", "default"]
    with DelayQ(settings=load_settings().of_connection("reports")) as client:
        assert client.schedule("report.daily", delay="1h").queue == "big"
        assert client.schedule("mail.send", delay="1h").queue == "slow"
        assert client.schedule("order.close", delay="1h", queue="said").queue == "said"


def test_a_route_to_another_connection_is_refused(routed: Path, server: redis.Redis) -> None:
    with DelayQ() as client:
        for schedule in (client.schedule, lambda name: client.schedule_many([JobSpec(name=name)])):
            with pytest.raises(InvalidInput, match=r"The job 'mail.send' belongs .* 'reports'.* Use `dispatch`"):
                schedule("mail.send")
        assert client.schedule("mail.send", delay="1h", queue="said").queue == "said"


def test_a_client_decides_as_dispatch_does_for_declared_jobs(
    routed: Path, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(declarations, "report.declared", SendOptions(queue="mine"))
    monkeypatch.setitem(declarations, "elsewhere", SendOptions(connection="reports"))
    monkeypatch.setitem(declarations, "order.own", SendOptions(queue="mine"))
    with DelayQ() as client:
        for name in ("report.declared", "elsewhere"):
            with pytest.raises(InvalidInput, match=f"The job '{name}' belongs .* 'reports'"):
                client.schedule(name, delay="1h")
        assert client.schedule("order.own", delay="1h").queue == "mine"
        assert client.schedule("elsewhere", delay="1h", queue="said").queue == "said"
    with DelayQ(settings=load_settings().of_connection("reports")) as client:
        assert client.schedule("elsewhere", delay="1h").queue == "slow"
        assert client.schedule("report.declared", delay="1h").queue == "mine"


def test_a_client_of_a_manager_follows_its_later_routes(routed: Path, server: redis.Redis) -> None:
    manager = Manager()
    client = manager.connection().client
    manager.route("order.*", queue="newer")
    assert client.schedule("order.close", delay="1h").queue == "newer"
    manager.route("order.*", connection="reports")
    with pytest.raises(InvalidInput, match="dispatch"):
        client.schedule("order.close", delay="1h")
    with using_manager(manager):
        assert dispatch("order.close", delay="1h").queue == "slow"
        assert dispatch("order.close", delay="1h", queue="said").queue == "said"
    manager.close()
