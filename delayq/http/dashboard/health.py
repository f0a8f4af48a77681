"""What is wrong with the server and its queues, as `delayq doctor` tells it; asked now and then, not at each page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from delayq.core.diagnosis import Finding, judge
from delayq.redis.aio import AsyncClient
from delayq.redis.checkup import gather
from delayq.redis.client import Client

FRESH_S: Final = 5.0


class Health:
    """The findings, at most five seconds old; one asks, and all others wait for the answer."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = Client(client.connector, client.options)
        self._lock = asyncio.Lock()
        self._kept: dict[tuple[str, ...] | None, tuple[float, tuple[Finding, ...]]] = {}

    async def findings(self, queues: Sequence[str] | None = None) -> tuple[Finding, ...]:
        """What is wrong with the server, which comes first, and with these queues; None: with all.

        Raises `BackendError` when it cannot be asked.
        """
        key = None if queues is None else tuple(sorted(queues))
        async with self._lock:
            now_s = time.monotonic()
            self._kept = {one: kept for one, kept in self._kept.items() if kept[0] > now_s}
            if key not in self._kept:
                found = tuple(await asyncio.to_thread(self._look, queues))
                self._kept[key] = (time.monotonic() + FRESH_S, found)
            return self._kept[key][1]

    def forget(self) -> None:
        """Somebody changed something: look again when asked next."""
        self._kept.clear()

    def _look(self, queues: Sequence[str] | None) -> list[Finding]:
        return judge(gather(self._client, queues=queues))
