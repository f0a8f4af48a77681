"""The command line as users have it: a process of its own, on a server of the suite."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from delayq.cli import main
from delayq.redis.server_binary import ServerBinary
from tests.support.cli import Cli, Done, environment
from tests.support.leftovers import pids_that_show

JOBS = """
import os
import time
from pathlib import Path

from delayq import Fail, JobContext, Retry, job

@job("order.close", queue="orders")
def close(order_id: int, context: JobContext) -> dict[str, object]:
    with Path("ran.txt").open("a") as file:
        file.write(f"{context.queue} {context.id}\\n")
    return {"closed": order_id}

@job("slow")
def slow() -> None:
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.01)

@job("bad", tries=1)
def bad(text: str = "no") -> None:
    raise ValueError(text)

@job("flaky")
def flaky() -> None:
    raise Retry
"""


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this shell counts, and no test may reach the user's own embedded server."""
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    """Commands on the default flavour's server, in a folder with a module `shop` of jobs."""
    (tmp_path / "shop.py").write_text(JOBS)
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url))
    yield cli
    cli.close()


class Inline:
    """Commands in this process, a hundred times faster. Not for `--app`, which imports, and not for `--config`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str | bytes) -> Done:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([os.fsdecode(word) for word in words])
        out, err = self._capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Done(left.value.code, out, err)

    def ok(self, *words: str | bytes) -> Done:
        """A command that must succeed."""
        done = self(*words)
        assert done.code == 0, f"delayq {words} ended with {done.code}\n{done.out}\n{done.err}"
        return done


@pytest.fixture
def inline(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inline:
    monkeypatch.setenv("DELAYQ_URL", cli.env["DELAYQ_URL"])
    monkeypatch.chdir(cli.folder)
    return Inline(capsys)


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    """The same server from Python, to prepare and to look: a command costs half a second."""
    with DelayQ(redis_url) as q:
        yield q


@pytest.fixture
def local(tmp_path: Path, default_server: ServerBinary) -> Iterator[Cli]:
    """Commands without a URL: on an embedded server with data in `tmp_path/data`, which must be gone at the end."""
    (tmp_path / "shop.py").write_text(JOBS)
    sockets = tempfile.mkdtemp(prefix="dq-cli-", dir="/tmp")
    cli = Cli(
        tmp_path,
        environment(
            DELAYQ_DATA_DIR=str(tmp_path / "data"),
            DELAYQ_REDIS_SERVER=str(default_server.path),
            XDG_RUNTIME_DIR=sockets,
        ),
    )
    yield cli
    cli.close()
    cli("down")
    left = pids_that_show(sockets)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(sockets, ignore_errors=True)
    assert left == [], "the test left servers running"
