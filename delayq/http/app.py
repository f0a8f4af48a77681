"""The HTTP application put together: who answers for which path.

request ─▶ Limits ─▶ routes ─▶ Service ─▶ AsyncClient ─▶ Redis
             │          │
             ╰──────────┴──── whatever goes wrong ─▶ problems
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fastapi import Depends, FastAPI
from fastapi.middleware import Middleware

from delayq import __version__
from delayq.app import make_driver, open_async_client
from delayq.http import health, metrics, problems
from delayq.http.access import known_key
from delayq.http.api import batch_create, batches, bulk, fleet, hot, jobs, lists, queues, reservations
from delayq.http.binding import Binding
from delayq.http.dashboard import routes
from delayq.http.keys import KeyFile
from delayq.http.limits import Bounds, Limits
from delayq.http.openapi import describe
from delayq.http.outcomes import Outcomes
from delayq.http.pull.desk import Desk
from delayq.http.service import Service
from delayq.http.strict import known_query
from delayq.settings import Settings

_API: Final = (queues, lists, batch_create, bulk, jobs, reservations, batches, fleet)
"""In the order in which paths are tried."""
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
    client, stopping = open_async_client(settings, "the HTTP service"), asyncio.Event()
    desk = Desk(make_driver(settings), client, settings, stopping)
    service = Service(client, settings, keys, desk, binding, stopping)
    bounds = Bounds(binding.hosts, 2 * settings.max_payload + _BODY_BESIDE_PAYLOAD)
    app = FastAPI(
        title="delayq",
        version=__version__,
        summary="Run work later and never lose it.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(Limits, bounds=bounds, known=partial(known_key, service)),
            Middleware(Outcomes, end=client.audit_log.end),
        ],
    )
    app.state.service = service
    problems.add_to(app)
    app.router.routes.extend(hot.routes())
    app.include_router(health.router)
    for part in _API:
        app.include_router(part.router, dependencies=[Depends(known_query)])
    house = routes.house_of(service)
    app.include_router(routes.router(house))
    app.state.unknown_page = routes.unknown_page(house)
    app.include_router(metrics.make_router(service))
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.held.warm()
    try:
        yield
    finally:
        service.stopping.set()
        service.held.stop()
        await service.desk.close()
        await service.client.close()
        service.client.connector.close()  # what metrics asked by
