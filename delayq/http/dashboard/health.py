"""What is wrong with the server and its queues, as `delayq doctor` tells it; asked now and then, not at each page."""

from __future__ import annotations

import asyncio
import time
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
        self._findings: tuple[Finding, ...] = ()
        self._until_s = 0.0

    async def findings(self) -> tuple[Finding, ...]:
        """What is wrong, the server first. Raises `BackendError` when it cannot be asked."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                self._findings = tuple(await asyncio.to_thread(self._look))
                self._until_s = time.monotonic() + FRESH_S
            return self._findings

    def forget(self) -> None:
        """Somebody changed something: look again when asked next."""
        self._until_s = 0.0

    def _look(self) -> list[Finding]:
        return judge(gather(self._client))
