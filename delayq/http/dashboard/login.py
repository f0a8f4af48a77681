"""Coming in with an API key, going, and how pages look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.http.dashboard.guard import Forged
from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import fault, frame
from delayq.http.dashboard.rendering import THEME, THEMES, sealed_off
from delayq.http.dashboard.visit import Visit

FORGED: Final = {
    "title": "This form is not ours",
    "what": "It came from another page, or from one that is out of date.",
    "next": "Load the page again and send its form.",
}
_YEAR_S: Final = 365 * 86_400
_FIELDS: Final = 2_000
"""Of one form: all boxes of a page and what stands beside them."""

Handler = Callable[[Request], Awaitable[Response]]


async def fields(request: Request) -> dict[str, list[str]]:
    """The fields of a form, as texts."""
    async with request.form(max_files=0, max_fields=_FIELDS) as form:
        return {name: [value for value in form.getlist(name) if isinstance(value, str)] for name in form}


def inside(path: str) -> str:
    """A place on this server to go on to; the first page for any other."""
    plain = path.isprintable() and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if plain else "/"


def form(house: House) -> Handler:
    """GET /login"""

    async def handle(request: Request) -> Response:
        if house.guard.viewer(request) is not None:
            return RedirectResponse("/", 303)
        return _asked(house, request, inside(request.query_params.get("next", "/")), "", 200)

    return handle


def enter(house: House) -> Handler:
    """POST /login"""

    async def handle(request: Request) -> Response:
        try:
            house.guard.check_origin(request)
        except Forged:
            return fault(house, request, None, FORGED, 403)
        said = await fields(request)
        following = inside(next(iter(said.get("next", ())), "/"))
        key = house.guard.find(next(iter(said.get("key", ())), ""))
        if key is None:
            return _asked(house, request, following, "That key is not known here, or was revoked.", 403)
        answer = sealed_off(RedirectResponse(following, 303))
        house.guard.admit(request, answer, key)
        return answer

    return handle


def _asked(house: House, request: Request, following: str, wrong: str, status: int) -> Response:
    told = {**frame(house, None), "following": following, "wrong": wrong}
    return house.renderer.page(request, "login.html", told, status)


async def leave(house: House, visit: Visit) -> Response:
    """POST /logout"""
    answer = sealed_off(RedirectResponse("/login" if visit.viewer.key else "/", 303))
    await house.guard.dismiss(answer, visit.viewer)
    return answer


async def theme(house: House, visit: Visit) -> Response:
    """POST /theme"""
    wanted = visit.filled("theme")
    answer = sealed_off(RedirectResponse(inside(visit.filled("here")), 303))
    if wanted in THEMES:
        answer.set_cookie(THEME, wanted, _YEAR_S, path="/", httponly=True, samesite="lax")
    return answer
