"""Primaries of a cluster, each a private server on loopback; without replicas."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.server import START_S, PrivateServer
from delayq.core.errors import ConfigError
from delayq.redis.server_binary import ServerBinary

HOST: Final = "127.0.0.1"
SLOTS: Final = 16_384
BUS: Final = 10_000
"""So far above its port a node talks to the others."""


class PrivateCluster:
    """So many primaries, as long as the `with` block lasts; slots in equal parts."""

    def __init__(self, binary: ServerBinary, primaries: int) -> None:
        self._ports = _free_ports(primaries)
        self.servers = [PrivateServer(binary, *_options(port)) for port in self._ports]
        self.url = f"redis+cluster://{','.join(f'{HOST}:{port}' for port in self._ports)}"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _join(self) -> None:
        share = SLOTS // len(self.servers)
        for number, server in enumerate(self.servers):
            last = SLOTS if server is self.servers[-1] else (number + 1) * share
            _say(server, "CLUSTER", "ADDSLOTS", *range(number * share, last))
            _say(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in self._ports[1:]:
            _say(self.servers[0], "CLUSTER", "MEET", HOST, port)
        wanted = (b"cluster_state:ok", b"cluster_known_nodes:%d\r" % len(self.servers))
        deadline = time.monotonic() + START_S
        while not all(word in _say(server, "CLUSTER", "INFO") for server in self.servers for word in wanted):
            if time.monotonic() > deadline:
                raise ConfigError(f"The cluster of {len(self.servers)} did not become whole.")
            time.sleep(0.02)


def _say(server: PrivateServer, *words: Any) -> Any:
    with server.client() as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def _options(port: int) -> tuple[str, ...]:
    more = {"port": str(port), "bind": HOST, "cluster-enabled": "yes", "cluster-config-file": "nodes"}
    return tuple(word for name, value in more.items() for word in (f"--{name}", value))


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(11_000, 21_000)
        try:
            for number in (port, port + BUS):
                socket.create_server((HOST, number)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found
