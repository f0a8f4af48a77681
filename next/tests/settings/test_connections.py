"""The connection that `connection` chooses: clients, managers and workers agree about it."""

from pathlib import Path

import pytest
import redis

from delayq import DelayQ
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
    assert manager.queue_of("order.close", None) == "slow" == manager.connection().settings.queue


def test_a_connection_without_a_table_is_refused(shop: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        DelayQ(settings=load_settings(connection="nope").chosen())
    assert (str(refused.value), refused.value.exit_code) == (
        "Unknown connection 'nope'. Known connections: reports. "
        "To add it, write a table [connections.nope] in delayq.toml.",
        2,
    )
