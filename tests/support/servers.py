"""Servers of the suite's own: private, on unix sockets, known by their process, never anybody else's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.redis.server_binary import ServerBinary
from delayq.redis.server_probe import ask
from delayq.redis.server_process import start_child
from tests.support.containers import ContainerServer, containers_wanted, require_engine
from tests.support.flavours import Flavour, require
from tests.support.waiting import wait_until

START_TIMEOUT_S = 20.0
CLIENT_TIMEOUT_S = 5.0


def connect(url: str) -> redis.Redis:
    """A plain client: bytes, five seconds, no silent retries. The caller closes it."""
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        socket_timeout=CLIENT_TIMEOUT_S,
        socket_connect_timeout=CLIENT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


class LocalServer:
    """One server process in a directory of its own. It ends with the test process, also when that is killed."""

    def __init__(
        self, binary: ServerBinary, *, persistent: bool = False, options: Mapping[str, str] | None = None
    ) -> None:
        """Nothing is started yet.

        `persistent` writes an append-only file, so that the data is there after `kill()` and `restart()`. `options` are
        more of the server's own, without dashes: `{"maxmemory": "10mb"}`.
        """
        self.binary = binary
        # Short, because a socket's path must be; mkdtemp gives it to this user alone.
        self.folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
        self.socket = self.folder / "s.sock"
        self.url = f"unix://{self.socket}?db=0"
        self._options = dict(options or {})
        self._persistent = persistent
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self._process is not None, "the server was never started"
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, more: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it answers. `more` options hold for this start alone."""
        assert not self.is_alive(), "the server runs already"
        self._process = start_child(self.arguments(more or {}), log=self.folder / "server.log", keep=())
        wait_until(self._is_up, timeout=START_TIMEOUT_S, what=f"{self.binary} answers")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def shutdown(self) -> None:
        """SIGTERM, the clean way out, and wait until it is gone."""
        self._end(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP: it stands still with all its connections open, until `cont()`."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Kill it if it runs, and start it again on the same url, with the same data if it is `persistent`."""
        self.kill()
        self.start()

    def settle(self) -> None:
        """Wait until what was acknowledged is in the file, as after a second of quiet.

        While an fsync is under way the server keeps new writes in memory, for up to two seconds: a `kill()` loses them.
        """
        with connect(self.url) as client:
            wait_until(lambda: is_written(client), what="the append-only file is written")

    def close(self) -> None:
        """End it and remove its directory."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        # Popen sends nothing to a child that was waited for, so a number used again is safe from us.
        self._process.send_signal(number)
        self._process.wait(timeout=START_TIMEOUT_S)

    def _is_up(self) -> bool:
        assert self.is_alive(), f"{self.binary} ended while it started:\n{self.log}"
        return self.is_ready()

    def is_ready(self) -> bool:
        """Whether it answers PING with PONG now."""
        try:
            answer = ask(self.socket)
        except TimeoutError:
            return False
        return answer is not None and answer.ready

    def arguments(self, more: Mapping[str, str]) -> list[str]:
        """The command that starts it, with `more` options."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes" if self._persistent else "no",
            "maxmemory-policy": "noeviction",
        }
        if self.binary.version >= (7, 0, 0):
            options["enable-debug-command"] = "local"
        options |= {**self._options, **more}
        return [str(self.binary.path), *(word for name, value in options.items() for word in (f"--{name}", value))]


class ServerGroup(Protocol):
    """Servers that belong together; see `topologies`."""

    url: str

    def primaries(self) -> list[LocalServer]:
        """Those that are written to now."""

    def pids(self) -> set[int]:
        """Of all its processes."""

    def close(self) -> None:
        """End all of them."""


class OwnServer(Protocol):
    """What the fixture `own_server` gives: call it for a fresh, private, started server of the default flavour."""

    def __call__(
        self, *, flavour: Flavour | None = None, persistent: bool = False, options: Mapping[str, str] | None = None
    ) -> LocalServer: ...


@dataclass(slots=True)
class SharedServers:
    """One server per flavour for a whole session of one test process, started when first asked for."""

    touched: set[str] = field(default_factory=set)
    """Urls used since the leak check last looked."""
    _servers: dict[Flavour, LocalServer | ContainerServer] = field(default_factory=dict)
    _groups: dict[str, ServerGroup] = field(default_factory=dict)
    _settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def url(self, flavour: Flavour) -> str:
        """The url of that flavour's server, emptied. Ends the test if this machine has none."""
        server = self._servers.get(flavour)
        if server is None:
            server = self._servers[flavour] = _start_shared(flavour)
        if not server.is_alive():
            del self._servers[flavour]
            server.close()
            raise AssertionError(f"the shared {flavour} server died in an earlier test; to end one, use own_server")
        self._empty(server.url)
        return server.url

    def group(self, kind: str, start: Callable[[], ServerGroup]) -> ServerGroup:
        """The servers of that kind that belong together, emptied; started when first asked for."""
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = start()
        for server in group.primaries():
            self._empty(server.url)
        return group

    def _empty(self, url: str) -> None:
        with connect(url) as client:
            client.flushall()
            self._settings.setdefault(url, client.config_get())
        self.touched.add(url)

    def changed_settings(self, url: str) -> list[str]:
        """What a test changed with CONFIG SET, in words. It is set back, so that only that test fails."""
        with connect(url) as client:
            now, before = client.config_get(), self._settings[url]
            changed = {name for name, value in before.items() if now.get(name) != value}
            for name in changed:
                client.config_set(name, before[name])
        return [f"{name} was {before[name]!r}, is {now.get(name)!r}" for name in sorted(changed)]

    def pids(self) -> set[int]:
        alone = {server.pid for server in self._servers.values() if isinstance(server, LocalServer)}
        return alone.union(*(group.pids() for group in self._groups.values()))

    def close(self) -> None:
        for server in (*self._servers.values(), *self._groups.values()):
            server.close()
        self._servers.clear()
        self._groups.clear()


def _start_shared(flavour: Flavour) -> LocalServer | ContainerServer:
    if containers_wanted():
        require_engine()
        return ContainerServer(flavour)
    server = LocalServer(require(flavour))
    server.start()
    return server


def is_written(client: redis.Redis) -> bool:
    """Whether all that the server acknowledged is in its append-only file."""
    found = client.info("persistence")
    return bool(found["aof_pending_bio_fsync"] == 0 and found["aof_buffer_length"] == 0)
