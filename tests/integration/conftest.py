"""Embedded servers for tests: in directories of their own, none left running."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from delayq.core.errors import DelayqError
from delayq.redis.embedded import EmbeddedServer
from delayq.redis.server_binary import ServerBinary
from tests.support.leftovers import pids_that_show


class MakeEmbedded(Protocol):
    """What the fixture `embedded` gives."""

    def __call__(self, data_dir: Path | None = None, *, server: Path | None = None) -> EmbeddedServer: ...


@pytest.fixture
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the sockets go. Every server shows it in its command line, so none that is left can hide."""
    folder = Path(tempfile.mkdtemp(prefix="dq-run-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    left = pids_that_show(str(folder))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == [], "the test left servers running"


@pytest.fixture
def embedded(runtime_dir: Path, tmp_path: Path, default_server: ServerBinary) -> Iterator[MakeEmbedded]:
    """Makes an EmbeddedServer, on `tmp_path/data` and with the default flavour's program unless told otherwise."""
    made: list[EmbeddedServer] = []

    def make(data_dir: Path | None = None, *, server: Path | None = None) -> EmbeddedServer:
        made.append(EmbeddedServer(data_dir or tmp_path / "data", server=server or default_server.path))
        return made[-1]

    yield make
    for server in made:
        try:
            server.stop(timeout_s=2.0)
        except DelayqError as error:
            # Not the end of it: what is still there fails the test in `runtime_dir`.
            print(error)  # noqa: T201  (pytest shows it with the failure)
