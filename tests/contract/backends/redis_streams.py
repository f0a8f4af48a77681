"""Redis, the main driver: the embedded wheel's server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from delayq.drivers.redis_streams import CAPABILITIES
from tests.contract.backend import IT, Backend
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer


class RedisHere:
    """One server for all tests; each has a key prefix of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._count = 0

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """A new prefix each time."""
        self._count += 1
        table = {"driver": "redis", "url": self._url, "prefix": f"contract{self._count}"}
        return {"lease": lease, "connections": {IT: table}}

    def away(self) -> Mapping[str, Any]:
        """A socket that is not there."""
        return {"connections": {IT: {"driver": "redis", "url": "unix:///tmp/delayq-nobody-is-here.sock"}}}


@contextmanager
def start() -> Iterator[RedisHere]:
    with closing(LocalServer(require(default_flavour()))) as server:
        server.start()
        yield RedisHere(server.url)


BACKENDS = [Backend("redis_streams", CAPABILITIES, start)]
