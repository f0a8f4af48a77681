"""What every page works with: one value, made once for a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from delayq.core.api_keys import covers
from delayq.core.views import QueueStats
from delayq.http.dashboard.guard import Guard
from delayq.http.dashboard.health import Health
from delayq.http.dashboard.live import Hub
from delayq.http.dashboard.payload import Redaction
from delayq.http.dashboard.rendering import Renderer
from delayq.http.service import Service
from delayq.redis.aio import AsyncClient

T = TypeVar("T")
AT_ONCE: Final = 50
"""Questions about queues that are under way together."""


@dataclass(frozen=True, slots=True)
class House:
    """The service, who may come in, how pages are made, and what is known of the health of queues."""

    service: Service
    guard: Guard
    renderer: Renderer
    health: Health
    hub: Hub
    redaction: Redaction

    @property
    def client(self) -> AsyncClient:
        """Asks Redis."""
        return self.service.client

    async def queues(self, allowed: tuple[str, ...]) -> list[str]:
        """The names of all known queues that may be seen; none named in `allowed`: all."""
        return [name for name in await self.client.queues() if covers(allowed, name)]

    async def stats(self, allowed: tuple[str, ...]) -> list[QueueStats]:
        """Return the counts of all queues that may be seen; of many queues they may be seconds old."""
        return [one for one, _ in await self.service.held.last() if covers(allowed, one.queue)]

    async def now_ms(self) -> int:
        """The server's time, which decides."""
        return await self.client.run(self.client.verbs.server_ms())


async def of_each(queues: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
    """What is told of every queue, in their order; some at a time, as each takes a connection of its own."""
    found: list[T] = []
    for start in range(0, len(queues), AT_ONCE):
        found += await asyncio.gather(*map(ask, queues[start : start + AT_ONCE]))
    return found
