"""What every route works with: one value, made once for a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from delayq.http.binding import Binding
from delayq.http.keys import KeyFile
from delayq.redis.aio import AsyncClient
from delayq.settings import Settings


@dataclass(frozen=True, slots=True)
class Service:
    """The client of the Redis that is served, the settings, the API keys, and where the server listens.

    `stopping` is set when the server is about to end: who keeps a request waiting answers then.
    """

    client: AsyncClient
    settings: Settings
    keys: KeyFile
    binding: Binding = field(default_factory=Binding)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def service_of(request: Request) -> Service:
    """The service of the application that got this request."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
