"""A primary and its replicas, of the suite's own. Replicas follow over the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Replicated:
    """One primary; its replicas follow it from the start."""

    primary: LocalServer
    replicas: tuple[LocalServer, ...]

    @property
    def url(self) -> str:
        return self.primary.url

    def anew(self) -> None:
        """Empty, with all replicas there again and in step."""
        for one in self.replicas:
            one.cont()
        with connect(self.url) as client:
            client.flushall()
            client.config_resetstat()
            wait_until(lambda: client.wait(len(self.replicas), 1_000) == len(self.replicas), timeout=30, what="in step")


@contextmanager
def replicated(replicas: int = 2) -> Iterator[Replicated]:
    """Started, and ended with the block."""
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "repl-diskless-sync-delay": "0"}
    binary = require(default_flavour())
    with ExitStack() as stack:
        primary = stack.enter_context(closing(LocalServer(binary, options=options)))
        primary.start()
        followers = []
        for _ in range(replicas):
            replica = stack.enter_context(closing(LocalServer(binary)))
            replica.start()
            with connect(replica.url) as client:
                client.execute_command("REPLICAOF", "127.0.0.1", port)
            followers.append(replica)
        yield Replicated(primary, tuple(followers))


def free_port() -> int:
    """A port nobody has, below those that connections are given."""
    while True:
        port = random.randrange(21_000, 31_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port
