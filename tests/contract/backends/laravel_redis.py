"""Laravel's queues in Redis, with Python on both sides; PHP's side stands in tests/laravel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from delayq.drivers.laravel_redis import CAPABILITIES
from tests.contract.backend import IT, Backend
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer


class LaravelsRedis:
    """One server for all tests; each has a key prefix of its own, as each application has."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._count = 0

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """A new prefix each time."""
        self._count += 1
        table = {"driver": "laravel_redis", "url": self._url, "prefix": f"app{self._count}_", "retry_after": lease}
        return {"connections": {IT: table}}

    def away(self) -> Mapping[str, Any]:
        """A socket that is not there."""
        return {"connections": {IT: {"driver": "laravel_redis", "url": "unix:///tmp/delayq-nobody-is-here.sock"}}}


@contextmanager
def start() -> Iterator[LaravelsRedis]:
    with closing(LocalServer(require(default_flavour()))) as server:
        server.start()
        yield LaravelsRedis(server.url)


BACKENDS = [Backend("laravel_redis", CAPABILITIES, start)]
