"""Bounds for the TCP connections of the server, so that a flood without a key cannot use up its descriptors.

Three rules: at most `limit` connections are open; a new one takes the place of the one that has waited longest for a
request; a connection sends a complete head within `HEAD_S` seconds, or is closed.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from math import inf
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from delayq.http.limits import WHOLE
from delayq.loops.log_limit import LogLimit

LOG: Final = logging.getLogger("delayq.http")
HEAD_S: Final = 10.0
"""How long a connection may take to send a complete head, counted from its start or from the last answer."""
MOST_CONNECTIONS: Final = 2048
_MOST_DESCRIPTORS: Final = 65_536
_DESCRIPTORS_FOR_OTHERS: Final = 384
"""Left for Redis, files, and connections that are accepted before they are counted."""
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of file descriptors towards its hard limit; return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return min(MOST_CONNECTIONS, max(wanted // 4, wanted - _DESCRIPTORS_FOR_OTHERS))


class Connections:
    """The open connections of one server; the waiting ones stand in the order in which they began to wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[BoundedConnection] = set()
        self._waiting: dict[BoundedConnection, None] = {}
        self._log = LogLimit(every_s=60.0)

    def opened(self, connection: BoundedConnection) -> bool:
        """Count a new connection, closing the one that has waited longest where too many are open.

        Returns False when each of the others has a request in progress: the new one has to go then.
        """
        self._open.add(connection)
        if len(self._open) > self._limit:
            if self._log.may_log("limit"):
                LOG.warning("all %d connections are in use, so each new one closes the longest idle", self._limit)
            if not self._waiting:
                return False
            next(iter(self._waiting)).drop()
        self._waiting[connection] = None
        return True

    def waits(self, connection: BoundedConnection) -> None:
        """Note that the connection waits for its next request."""
        if connection in self._open:
            self._waiting[connection] = None

    def works(self, connection: BoundedConnection) -> None:
        """Note that a request of the connection is in progress."""
        self._waiting.pop(connection, None)

    def closed(self, connection: BoundedConnection) -> None:
        """Forget the connection."""
        self._waiting.pop(connection, None)
        self._open.discard(connection)


class BoundedConnection(H11Protocol):
    """uvicorn's connection, counted by `connections` and held to `HEAD_S`."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._head_until_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all.opened(self):
            self._expect_head()
        else:
            transport.write(_BUSY)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._all.closed(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self.scope[WHOLE] = not self.cycle.more_body  # type: ignore[typeddict-unknown-key]
            self._head_until_s = inf
            self._all.works(self)

    def on_response_complete(self) -> None:
        self._all.waits(self)
        self._expect_head()
        super().on_response_complete()

    def drop(self) -> None:
        """Close the connection; what was written to it is still sent."""
        self._stop_timer()
        self._all.closed(self)
        self.transport.close()

    def _expect_head(self) -> None:
        """Set the deadline. A connection has one timer for all its requests: a timer for each cost 1 % of a request."""
        self._head_until_s = self.loop.time() + HEAD_S
        if self._timer is None:
            self._timer = self.loop.call_at(self._head_until_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._head_until_s <= self.loop.time():
            self.drop()
        elif self._head_until_s < inf:  # else a request is in progress, and its end starts the timer
            self._timer = self.loop.call_at(self._head_until_s, self._check_deadline)

    def _stop_timer(self) -> None:
        self._head_until_s = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
