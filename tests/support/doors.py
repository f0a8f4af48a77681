"""One way to call a `Connector` from a test, whether the sync or the asyncio clients are behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from delayq.redis.connect import Connector, Waits

Send = Callable[[Any], Any]


class SyncDoor:
    """`Connector.call`."""

    def __init__(self, url: str, waits: Waits) -> None:
        self.connector = Connector(url, waits=waits)

    def call(self, send: Send, *, safe: bool, reads: bool = False) -> Any:
        return self.connector.call(send, safe=safe, reads=reads)

    def rest(self) -> None:
        """Nothing runs between two calls, and nothing needs to."""

    def close(self) -> None:
        self.connector.close()


class AsyncDoor:
    """`Connector.acall`, in an event loop of its own."""

    def __init__(self, url: str, waits: Waits) -> None:
        self.connector = Connector(url, waits=waits)
        self._runner = asyncio.Runner()

    def call(self, send: Send, *, safe: bool, reads: bool = False) -> Any:
        return self._runner.run(self.connector.acall(send, safe=safe, reads=reads))

    def rest(self) -> None:
        """Let the event loop see what came in since the last call, as one that always runs does."""
        self._runner.run(asyncio.sleep(0.01))

    def close(self) -> None:
        with self._runner:
            self._runner.run(self.connector.aclose())


Door = SyncDoor | AsyncDoor
