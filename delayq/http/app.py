"""The HTTP application put together: who answers for which path.

request ─▶ Limits ─▶ routes ─▶ Service ─▶ AsyncClient ─▶ Redis
             │          │
             ╰──────────┴──── whatever goes wrong ─▶ problems
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from fastapi.middleware import Middleware

from delayq import __version__
from delayq.app import open_async_client
from delayq.http import health, problems
from delayq.http.api import queues
from delayq.http.binding import Binding
from delayq.http.dashboard import routes
from delayq.http.keys import KeyFile
from delayq.http.limits import Bounds, Limits
from delayq.http.service import Service
from delayq.settings import Settings

_BODY_BESIDE_PAYLOAD: Final = 256 * 1024
"""Room for what stands around a payload: headers, tags, white space, escapes."""


def make_app(settings: Settings, binding: Binding | None = None) -> FastAPI:
    """The application that serves the Redis of the settings; its lifespan closes what it opened.

    Raises `ConfigError` for a file of API keys that cannot be read, and `UnsafeSetup` for a `binding` that others
    reach without a key.
    """
    binding = binding or Binding()
    keys = KeyFile(settings.api_keys_file)
    binding.guard(has_keys=bool(keys.keys()))
    service = Service(open_async_client(settings), settings, keys, binding)
    bounds = Bounds(binding.hosts, 2 * settings.max_payload + _BODY_BESIDE_PAYLOAD)
    app = FastAPI(
        title="delayq",
        version=__version__,
        summary="Run work later and never lose it.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[Middleware(Limits, bounds=bounds)],
    )
    app.state.service = service
    problems.add_to(app)
    app.include_router(health.router)
    app.include_router(queues.router)
    app.include_router(routes.router(service))
    # Whoever adds metrics includes their router here, built from `service`.
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    try:
        yield
    finally:
        service.stopping.set()
        await service.client.close()
