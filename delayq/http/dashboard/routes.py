"""Which page answers for which address, and what one needs to be let in.

GET      guard.viewer ──▶ page ──▶ templates
POST     guard.viewer ──▶ guard.check (mark, origin) ──▶ act ──▶ 303 to a page that says what happened
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.core.api_keys import Scope
from delayq.core.errors import DelayqError
from delayq.http.dashboard import (
    events,
    failed_page,
    fleet_pages,
    job_acts,
    job_page,
    job_types_page,
    jobs_page,
    limit_pages,
    login,
    overview,
    queue_pages,
    redis_page,
    switch_acts,
)
from delayq.http.dashboard.confirm import Answer, confirmed
from delayq.http.dashboard.guard import Forged, Guard
from delayq.http.dashboard.health import Health
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Hub, Watched
from delayq.http.dashboard.pages import fault, fault_of
from delayq.http.dashboard.payload import Redaction
from delayq.http.dashboard.rendering import Renderer
from delayq.http.dashboard.viewer import Viewer
from delayq.http.dashboard.visit import Visit, here, link
from delayq.http.service import Service

LOG: Final = logging.getLogger("delayq.http.dashboard")
Handler = Callable[[Request], Awaitable[Response]]

PAGES: Final[tuple[tuple[str, Answer], ...]] = (
    ("/", overview.page),
    ("/queues", queue_pages.all_queues),
    ("/queues/{queue}", queue_pages.one_queue),
    ("/jobs", jobs_page.page),
    ("/job", job_page.page),
    ("/failed", failed_page.page),
    ("/failed/all", failed_page.preview),
    ("/failed/groups", failed_page.groups),
    ("/job-types", job_types_page.page),
    ("/workers", fleet_pages.workers),
    ("/batches", fleet_pages.batches),
    ("/batch", fleet_pages.batch),
    ("/limits", limit_pages.limits),
    ("/events", events.page),
)
ADMIN_PAGES: Final[tuple[tuple[str, Answer], ...]] = (("/audit", limit_pages.audit), ("/redis", redis_page.page))
ACTS: Final[tuple[tuple[str, Scope, Answer], ...]] = (
    ("/jobs/picked", Scope.WRITE, confirmed(jobs_page.ask_picked, jobs_page.picked)),
    ("/job/{act}", Scope.WRITE, confirmed(job_acts.ask, job_acts.act)),
    ("/queues/{queue}/pause", Scope.ADMIN, confirmed(queue_pages.ask_pause, queue_pages.pause)),
    ("/queues/{queue}/resume", Scope.ADMIN, queue_pages.resume),
    ("/failed/picked", Scope.WRITE, confirmed(failed_page.ask_picked, failed_page.picked)),
    ("/failed/all", Scope.WRITE, failed_page.all_of_them),
    ("/switch/{act}", Scope.ADMIN, confirmed(switch_acts.ask, switch_acts.act)),
    ("/queues/{queue}/remove", Scope.ADMIN, confirmed(queue_pages.ask_remove, queue_pages.remove)),
    ("/workers/{order}", Scope.ADMIN, confirmed(fleet_pages.ask_order, fleet_pages.order)),
    ("/batch/cancel", Scope.ADMIN, confirmed(fleet_pages.ask_cancel, fleet_pages.cancel_batch)),
    ("/batch/retry", Scope.ADMIN, fleet_pages.retry_batch),
    ("/limits/free", Scope.ADMIN, limit_pages.free_limit),
    ("/locks/free", Scope.ADMIN, limit_pages.free_lock),
)

_COMINGS: Final[tuple[tuple[str, Scope, Answer], ...]] = (
    ("/logout", Scope.READ, login.leave),
    ("/theme", Scope.READ, login.theme),
)


def router(house: House) -> APIRouter:
    """All of the dashboard, for the application to include."""
    found = APIRouter()
    handlers = [(path, _page(house, answer), "GET") for path, answer in PAGES]
    handlers += [(path, _page(house, answer, Scope.ADMIN), "GET") for path, answer in ADMIN_PAGES]
    handlers += [(path, _act(house, scope, answer), "POST") for path, scope, answer in (*ACTS, *_COMINGS)]
    handlers += [("/login", login.form(house), "GET"), ("/login", login.enter(house), "POST")]
    for path, handler, method in handlers:
        found.add_route(path, _ready(house, handler), [method], include_in_schema=False)
    found.add_route("/static/{name}", _static(house), ["GET"], include_in_schema=False)
    return found


def unknown_page(house: House) -> Handler:
    """Return what answers a browser that asks for an address without a page."""

    async def handle(request: Request) -> Response:
        told = {"title": "Page not found", "what": "There is no page at this address.", "next": "Go to the overview."}
        return fault(house, request, house.guard.viewer(request), told, 404)

    return _ready(house, handle)


def house_of(service: Service) -> House:
    """Make what all pages of this server work with."""
    makers = {"overview": overview.parts, "queues": queue_pages.parts, "queue": queue_pages.queue_parts}
    makers |= {
        "jobs": jobs_page.parts,
        "job": job_page.parts,
        "workers": fleet_pages.worker_parts,
        "batches": fleet_pages.batch_parts,
    }

    async def make(watched: Watched) -> dict[str, str]:
        return dict(await makers[watched.page](house, watched))

    options = service.client.options
    about = {"redis": service.client.connector.endpoint.where, "prefix": options.prefix}
    hub = Hub(make, service.stopping)
    redaction = Redaction(service.settings.redact)
    guard, health = Guard(service.keys, service.seals), Health(service.client)
    house = House(service, guard, Renderer(about), health, hub, redaction)
    return house


def _ready(house: House, handler: Handler) -> Handler:
    """Whoever comes is known by what is sealed; without Redis nobody is, until it was asked once."""

    async def handle(request: Request) -> Response:
        try:
            await house.guard.ready()
        except DelayqError as error:
            return fault_of(house, request, None, error)
        return await handler(request)

    return handle


def _page(house: House, answer: Answer, scope: Scope = Scope.READ) -> Handler:
    async def handle(request: Request) -> Response:
        viewer = house.guard.viewer(request)
        if viewer is None:
            return RedirectResponse(link("/login", next=here(request)), 303)
        if not viewer.may(scope):
            return _not_allowed(house, request, viewer, scope)
        return await _answered(house, answer, Visit(request, viewer))

    return handle


def _act(house: House, scope: Scope, answer: Answer) -> Handler:
    async def handle(request: Request) -> Response:
        viewer = house.guard.viewer(request)
        if viewer is None:
            return RedirectResponse("/login", 303)
        visit = Visit(request, viewer, await login.fields(request))
        try:
            house.guard.check(request, viewer, visit.filled("mark"))
        except Forged:
            return fault(house, request, viewer, login.FORGED, 403)
        if not viewer.may(scope):
            return _not_allowed(house, request, viewer, scope)
        return await _answered(house, answer, visit)

    return handle


def _not_allowed(house: House, request: Request, viewer: Viewer, scope: Scope) -> Response:
    told = {"title": "Not allowed", "what": f"Your key may not do that: it is {viewer.role}."}
    return fault(house, request, viewer, {**told, "next": f"It takes the scope {scope}."}, 403)


async def _answered(house: House, answer: Answer, visit: Visit) -> Response:
    try:
        return await answer(house, visit)
    except DelayqError as error:
        LOG.info("%s %s: %s", visit.request.method, visit.request.url.path, error)
        return fault_of(house, visit.request, visit.viewer, error)


def _static(house: House) -> Handler:
    async def handle(request: Request) -> Response:
        found = house.renderer.file(request.path_params["name"])
        return found or fault(house, request, None, {"title": "Not here", "what": "No such file.", "next": ""}, 404)

    return handle
