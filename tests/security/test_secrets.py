"""A secret stands in every place a secret can stand, and in nothing that anybody is shown."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from delayq import AsyncDelayQ, DelayQ, Settings
from delayq.core.errors import DelayqError
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from tests.cli.conftest import Inline
from tests.support.cli import environment
from tests.support.every_command import ALL
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

SECRET = "s3cr3t/pa@ss:word"
SHOWN_AS = (SECRET, quote(SECRET, safe=""), "s3cr3t", "ss:word")
KEY = base64.b64encode(b"k3ysecret-k3ysecret-k3ysecret-32").decode()

HASTY = Waits(connect_ms=200, answer_ms=200, budget_ms=200)

Run = Callable[..., str]


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    server = own_server()
    with connect(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~*", "&*", "+@all")
    return server


@pytest.fixture
def url(server: LocalServer) -> str:
    return server.url.replace("unix://", f"unix://shop:{quote(SECRET, safe='')}@")


@pytest.fixture(autouse=True)
def planted(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment and in the file; each test adds a place of its own."""
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DELAYQ_URL", url)
    monkeypatch.setenv("DELAYQ_DATABASE", f"postgresql://shop:{quote(SECRET, safe='')}@127.0.0.1:1/shop")
    monkeypatch.setenv("DELAYQ_KEYS", f"new:{KEY}")
    Path("delayq.toml").write_text(f'[connections.reports]\nurl = "redis://:{quote(SECRET, safe="")}@127.0.0.1:1/0"\n')


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Run:
    """A command; all that it printed and logged."""
    inline = Inline(capsys)

    def said(*words: str) -> str:
        caplog.clear()
        done = inline(*words)
        return f"{done.out}\n{done.err}\n{caplog.text}"

    return said


def assert_hidden(said: str, what: object) -> None:
    found = [form for form in (*SHOWN_AS, KEY) if form in said]
    assert not found, f"{what} shows {found}:\n{said}"


def test_no_command_shows_one(run: Run) -> None:
    for words in (*ALL, ("key", "list"), ("outbox", "list"), ("relay", "--once"), ("config", "show", "--json")):
        assert_hidden(run("-v", "--log-level", "debug", *words), words)


@pytest.mark.parametrize(
    "where",
    [
        "unix://shop:wrong{secret}@{socket}",
        "redis://:{secret}@127.0.0.1:1/0",
        "rediss://shop:{secret}@127.0.0.1:1/0?ssl_cert_reqs=none",
        "redis+sentinel://:{secret}@127.0.0.1:1/main",
        "redis+sentinel://127.0.0.1:1/main?sentinel_password={secret}",
        "redis+cluster://:{secret}@127.0.0.1:1",
        "redis://:{secret}@127.0.0.1:1/0?password={secret}",
        "redis://:{raw}@127.0.0.1:1/0",
        "redis://{raw}127.0.0.1:1/0",
        "redis:/{raw}@127.0.0.1",
        "{raw}@127.0.0.1",
        "redis://:{secret}@127.0.0.1:1/0#x",
        "redis://:{secret}@127.0.0.1:1/0?no_such={secret}",
        "redis://:{secret}@127.0.0.1:port/0",
        "postgresql://shop:{secret}@127.0.0.1:1/shop",
    ],
)
def test_nor_an_error_about_its_url(run: Run, server: LocalServer, where: str) -> None:
    url = where.format(secret=quote(SECRET, safe=""), raw=SECRET, socket=server.socket)
    assert_hidden(run("-v", "--url", url, "config", "show"), url)
    try:
        with closing(Connector(url, waits=HASTY)) as connector:
            Client(connector, Options()).stats()
    except DelayqError as error:
        assert_hidden("".join(traceback.format_exception(error)) + repr(error), url)


@pytest.mark.parametrize("line", ["url = 7{secret}", 'url = "{secret}', 'keys = "new:{key}x"', 'keys = ["{key}"]'])
def test_nor_a_file_that_cannot_be_read(run: Run, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_KEYS")
    Path("delayq.toml").write_text(line.format(secret=SECRET, key=KEY) + "\n")
    assert_hidden(run("-v", "config", "show"), line)


async def test_nor_what_a_program_prints(url: str) -> None:
    settings = Settings()
    with DelayQ(url) as q:
        aq = AsyncDelayQ(url)
        connector = Connector(url)
        things = [settings, settings.options(), settings.keyring(), settings.url, settings.database, q, q.connector]
        for thing in [*things, aq, connector, connector.endpoint, settings.model_dump(warnings=False)]:
            assert_hidden(f"{thing!r} {thing}", type(thing))
        for client in (connector.commands(), connector.commands().connection_pool, connector.acommands()):
            assert_hidden(repr(client), type(client))
        connector.close()
        await aq.close()


@pytest.fixture
def worker(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "delayq", "--url", url, "--log-level", "debug", "work", "--app", "secret_shop"]
    (tmp_path / "secret_shop.py").write_text("from delayq import job\n\n@job('x')\ndef x() -> None: ...\n")
    env = environment(DELAYQ_DATA_DIR=str(tmp_path / "data"), DELAYQ_KEYS=f"new:{KEY}")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=log, stderr=log)
        yield process
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="argv is overwritten on Linux alone")
def test_nor_ps_of_a_worker_and_its_children(worker: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Even where it was said on the command line. The children have what their parent had."""
    log = tmp_path / "log"
    wait_until(lambda: b"Serving" in log.read_bytes(), what=f"the worker serves {log}")
    wait_until(lambda: len(_tree(worker.pid)) > 1, what="it has children")
    shown = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in _tree(worker.pid)}
    for pid, line in shown.items():
        assert "work" in line.split("\0"), f"{pid} is another program"
        assert_hidden(line, f"ps of {pid}")
    assert_hidden(log.read_text(), "its log")


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _tree(int(child)))]
