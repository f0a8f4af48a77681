"""The commands and programs that docs/protocol.md shows to other languages do what it says they do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from delayq.core.options import Options
from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.docs.manuals import ROOT
from tests.docs.pages import Block, blocks, page, section
from tests.support.flavours import missing

PAGE = page("docs/protocol.md")
CONSUMER = [block for block in blocks(section(PAGE, "A plain consumer")) if block.language == "sh"]
PRODUCER = [
    block for block in blocks(section(PAGE, "A producer or a worker in another language")) if block.language == "sh"
]
PYTHON = [block for block in blocks(section(PAGE, "A plain consumer")) if block.language == "python"]
WRITTEN_URL = "redis://localhost:6379/0"


@pytest.fixture
def connector(redis_url: str) -> Iterator[Connector]:
    with closing(Connector(redis_url)) as connector:
        yield connector


@pytest.fixture
def client(connector: Connector) -> Client:
    return Client(connector, Options(queue="orders"))


@pytest.fixture
def driver(connector: Connector) -> RedisStreams:
    return RedisStreams(connector, Options(queue="orders"))


def shell(redis_url: str, *parts: Block) -> list[str]:
    """Run blocks in one shell from the root of the checkout, against the test's own server; the lines they print."""
    program = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if program is None or shutil.which("bash") is None:
        missing("no bash and redis-cli or valkey-cli on this machine", allowed=True)
    socket = urlsplit(redis_url).path
    text = "\n".join(block.text.replace("job.txt", "$JOB_TXT") for block in parts)
    script = f'set -eu\nredis-cli() {{ {program} -s {socket} "$@"; }}\nJOB_TXT=$(mktemp)\n{text}\nrm "$JOB_TXT"\n'
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_page_has_the_blocks_that_are_run_here() -> None:
    assert (len(CONSUMER), len(PRODUCER), len(PYTHON)) == (2, 1, 1)
    assert WRITTEN_URL in PYTHON[0].text


def test_xack_with_redis_cli(redis_url: str, client: Client, driver: RedisStreams) -> None:
    client.schedule("order.close", {"order_id": 42}, id="order-42")
    claimed, acked = shell(redis_url, CONSUMER[0])
    assert acked == "1"
    job = client.get("order-42")
    assert job is not None
    assert (job.entry, job.consumer, job.state) == (claimed, "", State.RESERVED)
    assert driver.tidy("orders").closed == 1
    assert client.get("order-42") is None


def test_ack_lua_with_redis_cli(redis_url: str, client: Client) -> None:
    client.schedule("order.close", {"order_id": 42}, id="order-42")
    acks = Block("sh", "", "\n".join(line for line in CONSUMER[0].text.splitlines() if "XACK" not in line), 0)
    assert shell(redis_url, acks, CONSUMER[1])[-1] == "1"
    assert client.get("order-42") is None


def test_schedule_lua_with_redis_cli(redis_url: str, client: Client) -> None:
    assert shell(redis_url, PRODUCER[0])[:3] == ["1", "1", "created"]
    job = client.get("order-42")
    assert job is not None
    assert (job.state, job.name, job.data) == (State.SCHEDULED, "order.close", {"order_id": 42})
    assert job.due_ms is not None
    [stats] = client.stats("orders")
    assert 0 < job.due_ms - stats.now_ms <= 900_000
    assert client.queues() == ["orders"]
    assert shell(redis_url, PRODUCER[0])[:3] == ["0", "0", "kept"]


def test_redis_py(redis_url: str, client: Client, driver: RedisStreams, capsys: pytest.CaptureFixture[str]) -> None:
    client.schedule("order.close", {"order_id": 42}, id="order-42")
    names: dict[str, Any] = {}
    exec(compile(PYTHON[0].text.replace(WRITTEN_URL, redis_url), "docs/protocol.md", "exec"), names)
    names["client"].close()
    assert capsys.readouterr().out == "order.close {'order_id': 42}\n"
    assert driver.tidy("orders").closed == 1
    assert client.get("order-42") is None


def test_calling_a_script_with_redis_py(
    redis_url: str, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of scripts/lua/README.md."""
    monkeypatch.chdir(ROOT)
    [block] = [block for block in blocks(page("scripts/lua/README.md")) if block.language == "python"]
    client.schedule("order.close", delay="15m")
    client.schedule("order.close")
    names: dict[str, Any] = {}
    exec(compile(block.text.replace(WRITTEN_URL, redis_url), "scripts/lua/README.md", "exec"), names)
    names["client"].close()
    assert capsys.readouterr().out == "1 1 0 0 0\n"
