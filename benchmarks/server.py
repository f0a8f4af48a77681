"""A fresh server for every measure: private unix socket, nothing written to disk, ended by its own process id."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import redis

from delayq.core.errors import ConfigError
from delayq.redis.server_binary import ServerBinary, choose_server, examine

START_S: Final = 10.0
WANTED: Final = (7, 0, 0)


def choose(explicit: Path | None = None) -> ServerBinary:
    """The server to measure on: the one asked for, else a redis-server 7 on PATH, else the embedded one."""
    found = shutil.which("redis-server")
    if explicit is None and found is not None:
        binary = examine(Path(found), source="PATH")
        if binary.version >= WANTED:
            return binary
    return choose_server(explicit)


class PrivateServer:
    """A server that lives as long as the `with` block. `options` are added to its command line."""

    def __init__(self, binary: ServerBinary, *options: str) -> None:
        self.binary = binary
        self._options = options

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="delayq-bench-")
        self.socket = Path(self._home.name) / "server.sock"
        self._process = subprocess.Popen(
            [
                str(self.binary.path), "--port", "0", "--unixsocket", str(self.socket), "--dir", self._home.name,
                "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "", *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self._await_answer()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where delayq finds it."""
        return f"unix://{self.socket}?db=0"

    def client(self) -> Any:
        """A plain redis-py client on the protocol that delayq speaks, RESP2.

        Untyped, because redis-py types its replies for asyncio and threads at once.
        """
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=60.0, protocol=2)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except redis.ConnectionError as error:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise ConfigError(f"The server {self.binary} did not start: {error}.") from error
            time.sleep(0.01)
