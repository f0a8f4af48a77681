"""A server for tests alone: the embedded one, in a directory that goes with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from delayq.redis.calls.call import Command
from delayq.redis.connect import Connector
from delayq.redis.embedded import EmbeddedServer
from delayq.redis.send import send
from delayq.settings import Settings


@contextmanager
def private_server() -> Iterator[Connector]:
    """Connections to a server that is started for the block, on a socket of its own, and ends with it.

    The program is the one the embedded server would take; no URL of the settings is ever used. Raises `ConfigError`
    when there is no such program.
    """
    with tempfile.TemporaryDirectory(prefix="delayq-test-") as folder:
        server = EmbeddedServer(Path(folder), server=Settings().redis_server)
        with server.start_child() as child, closing(Connector(child.running.url)) as connector:
            yield connector


def empty(server: Connector) -> None:
    """Drop everything it holds."""
    server.call(partial(send, call=Command(("FLUSHALL",), bool)), safe=True)
