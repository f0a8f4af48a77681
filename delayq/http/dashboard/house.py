"""What every page works with: one value, made once for a server."""

from __future__ import annotations

from dataclasses import dataclass

from delayq.http.dashboard.guard import Guard
from delayq.http.dashboard.health import Health
from delayq.http.dashboard.live import Hub
from delayq.http.dashboard.payload import Redaction
from delayq.http.dashboard.rendering import Renderer
from delayq.http.service import Service
from delayq.redis.aio import AsyncClient


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

    async def now_ms(self) -> int:
        """The server's time, which decides."""
        return await self.client.run(self.client.verbs.server_ms())
