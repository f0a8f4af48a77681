"""The main driver again, on a primary behind sentinels and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from delayq.drivers.redis_streams import CAPABILITIES
from tests.contract.backend import Backend, Server
from tests.contract.backends.redis_streams import RedisHere
from tests.support.flavours import default_flavour, require
from tests.support.topologies import Kind, start


@contextmanager
def start_group(kind: Kind) -> Iterator[RedisHere]:
    """The servers of that kind."""
    with closing(start(kind, require(default_flavour()))) as group:
        yield RedisHere(group.url)


def starting(kind: Kind) -> AbstractContextManager[Server]:
    """The same, as a row takes it."""
    return start_group(kind)


BACKENDS = [Backend(f"redis_{kind}", CAPABILITIES, partial(starting, kind)) for kind in (Kind.SENTINEL, Kind.CLUSTER)]
