"""Starts workers for tests, and ends them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ
from tests.support.waiting import wait_until

Start = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a worker with these options, and with `url=` for another server."""


@contextmanager
def workers_of(app: str, folder: Path, url: str, **variables: str) -> Iterator[Start]:
    """Give a function that starts workers with the module `app` in a folder. Their stderr goes to the file `err`."""
    (folder / "app.py").write_text(app)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    with ExitStack() as stack:

        def start(*options: str, url: str = url) -> subprocess.Popen[bytes]:
            words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", *options]
            with (folder / "err").open("wb") as err:
                worker = subprocess.Popen(words, cwd=folder, env=environment, stderr=err)
            stack.callback(end_worker, worker)
            return worker

        yield start


def client_fixture(queue: str | None = None) -> Any:
    """Return the fixture `client` of a test file: a client with a default queue, on an empty server."""

    @pytest.fixture
    def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
        with DelayQ(url, queue=queue) as client:
            yield client

    return client


def start_fixture(app: str, **variables: str) -> Any:
    """Return the fixture `start` of a test file: it starts workers with the module `app`; see `workers_of`."""

    @pytest.fixture
    def start(url: str, client: DelayQ, tmp_path: Path) -> Iterator[Start]:
        with workers_of(app, tmp_path, url, **variables) as start:
            yield start

    return start


def children_of(pid: int) -> list[int]:
    """List the process ids of the children of a process; none when it has ended."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def end_worker(worker: "subprocess.Popen[bytes]") -> None:
    """Kill a worker and its children, so that none of them writes to the server of the next test.

    The worker is suspended first, so that it starts no further child after its children were listed.
    """
    worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: _state_of(worker.pid) in "TZ")
    children = children_of(worker.pid)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    wait_until(lambda: all(_state_of(child) == "Z" for child in children))
    worker.kill()
    worker.wait()


def _state_of(pid: int) -> str:
    """Return the letter of the state of a process; Z if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "Z"
