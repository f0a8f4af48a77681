"""/events: what has changed on a page that is open."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

from fastapi.sse import EventSourceResponse
from starlette.responses import PlainTextResponse, Response

from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.names import check_id
from delayq.core.states import State
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Full, Watched
from delayq.http.dashboard.visit import Visit

PAGES: Final = ("overview", "queues", "queue", "jobs", "job", "workers", "batches")

BY_ROLE: Final = ("overview", "jobs", "workers")
"""Pages whose changing parts have buttons."""


async def page(house: House, visit: Visit) -> Response:
    """GET /events?page=…&queue=…&id=…"""
    name, queue, job = visit.asked("page"), visit.asked("queue"), visit.asked("id")
    if name not in PAGES or (name in ("queue", "job")) != bool(queue) or (name == "job") != bool(job):
        raise InvalidInput("There is no such page to watch.", hint=f"Those that can be: {', '.join(PAGES)}.")
    find = visit.asked("find")[:128]
    if name == "jobs":  # which jobs: a state, perhaps a queue and an order
        listed, order = visit.asked("state"), visit.asked("order")
        visit.state(listed, State.SCHEDULED)
        queued = visit.asked("of")
        members = {"state": listed, "queue": visit.queue(queued) if queued else "", "order": order[:10]}
        find = urlencode({word: value for word, value in members.items() if value})
    watched = Watched(
        name,
        visit.queue(queue) if queue else "",
        check_id(job) if job else "",
        tuple(sorted(visit.viewer.queues)),
        visit.asked("after")[:128],
        find,
        visit.viewer.role if name in BY_ROLE else "",
    )

    async def admitted() -> bool:
        """A log-out, a key that was revoked and one that was given other rights end the stream."""
        with suppress(DelayqError):  # without Redis the log-outs known so far count; the page says that Redis is away
            await house.guard.ready()
        viewer = house.guard.viewer(visit.request)
        return viewer is not None and viewer.key == visit.viewer.key

    try:
        stream = await house.hub.watch(watched, admitted)
    except Full:
        return PlainTextResponse("Too many pages are watched already.", 503, {"Retry-After": "30"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(stream, headers=headers)
