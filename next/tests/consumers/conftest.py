"""A server with a TCP port, because the programs of consumers/ read `redis://…`."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from delayq import DelayQ
from delayq.cli import main as cli
from tests.consumers.programs import Programs, go_build, node, npm_ci, php
from tests.support.servers import private_server


@pytest.fixture(scope="session")
def port_url() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with private_server(["--port", str(port), "--bind", "127.0.0.1"]):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
def raw(port_url: str) -> Iterator[redis.Redis]:
    """A plain client. At the end of the test, everything on the server is deleted."""
    client = redis.Redis.from_url(port_url, decode_responses=True, protocol=2)
    yield client
    client.flushall()
    client.close()


@pytest.fixture
def q(raw: redis.Redis, port_url: str) -> Iterator[DelayQ]:
    with DelayQ(port_url, queue="orders") as client:
        yield client


@pytest.fixture
def programs(q: DelayQ, port_url: str, tmp_path: Path) -> Iterator[Programs]:
    """Starts programs in a folder that has the exported scripts in `lua`."""
    exported = CliRunner().invoke(cli.app, ["scripts", "export", str(tmp_path / "lua")])
    assert exported.exit_code == 0
    with ExitStack() as stack:
        yield Programs(tmp_path, port_url, stack)


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_ci(_shared(tmp_path_factory, "node"))


@pytest.fixture
def producer_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Returns the command of a producer, without its two arguments. Skips the test if its program is missing."""

    def command(language: str) -> list[str]:
        if language == "php":
            return php()
        if language == "go":
            return [str(go_build(_shared(tmp_path_factory, "go")))]
        return [node(), str(npm_ci(_shared(tmp_path_factory, "node")) / "producer.mjs")]

    return command


def _shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all processes of this test run share."""
    base = factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / name
