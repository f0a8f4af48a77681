"""From what a page is told to an answer: what all pages have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.core import errors
from delayq.http import outcomes
from delayq.http.dashboard.guard import SAID
from delayq.http.dashboard.house import House
from delayq.http.dashboard.rendering import sealed_off
from delayq.http.dashboard.viewer import Viewer
from delayq.http.dashboard.visit import NotAllowed, Visit, WrongQueue, here
from delayq.http.problems import status_of

RETRY_AFTER_S: Final = 5


async def show(house: House, visit: Visit, template: str, told: Mapping[str, Any], status: int = 200) -> Response:
    """A page, with what was said last on top of it."""
    said = house.guard.said(visit.request)
    common = {**frame(house, visit.viewer), "said": said, "here": here(visit.request)}
    answer = house.renderer.page(visit.request, template, {**common, **told}, status)
    if said:
        answer.delete_cookie(SAID, path="/")
    house.guard.greet(visit.request, answer, visit.viewer)
    return answer


def frame(house: House, viewer: Viewer | None) -> dict[str, Any]:
    """What stands around a page: who looks, what he may do, the mark of his forms."""
    return {
        "viewer": viewer,
        "mark": house.guard.mark(viewer) if viewer else "",
        "said": "",
        "here": "/",
        "locked": house.service.keys.wanted,
    }


def back(house: House, visit: Visit, where: str, sentence: str) -> Response:
    """After something was done: to a page, which opens with that sentence. Its address can be loaded again safely."""
    answer = sealed_off(RedirectResponse(where, 303))
    house.guard.say(visit.request, answer, sentence)
    return answer


def fault(house: House, request: Request, viewer: Viewer | None, told: Mapping[str, Any], status: int) -> Response:
    """A page that says what went wrong: `title`, `what`, `next`."""
    answer = house.renderer.page(request, "error.html", {**frame(house, viewer), **told}, status)
    if status == 503:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    if viewer is not None:
        house.guard.greet(request, answer, viewer)
    return answer


def fault_of(house: House, request: Request, viewer: Viewer | None, error: errors.DelayqError) -> Response:
    """The page of an error of ours."""
    status = 403 if isinstance(error, NotAllowed) else {422: 400}.get(status_of(error), status_of(error))
    outcomes.refused(error.message)
    title = next(
        (word for kind, word in _KINDS if isinstance(error, kind)), _TITLES.get(status, "Something went wrong")
    )
    if isinstance(error, errors.BackendUnavailable):
        title = "Redis refuses writes" if error.refuses_writes else "Redis does not answer"
    told = {"title": title, "what": error.message, "next": error.hint.replace(" (--queue)", "")}  # no command line here
    return fault(house, request, viewer, told, status)


_TITLES: Final = {
    400: "Invalid input",
    404: "Not here",
    409: "Not in this state",
    503: "Redis refused",
}
_KINDS: Final = ((WrongQueue, "Wrong queue"), (NotAllowed, "Not allowed"))
