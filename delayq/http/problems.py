"""Every refusal and every failure as a problem document (RFC 9457), in one place.

{"type": "urn:delayq:invalid-duration", "title": "Invalid duration", "status": 422,
 "detail": "'15 minuets' is no duration: it has white space in it.", "hint": "Write it like 15m, …",
 "instance": "/v1/jobs", "errors": [{"pointer": "#/delay", "detail": "…"}]}
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from delayq.core import errors
from delayq.http import outcomes

LOG: Final = logging.getLogger("delayq.http")
MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 2

_STATUS: Final[dict[type[errors.DelayqError], int]] = {
    errors.DelayqError: 500,
    errors.InvalidInput: 422,
    errors.JobNotFound: 404,
    errors.QueueNotFound: 404,
    errors.LockNotFound: 404,
    errors.LimitNotFound: 404,
    errors.WorkerNotFound: 404,
    errors.BatchNotFound: 404,
    errors.ApiKeyNotFound: 404,
    errors.Conflict: 409,
    errors.BackendUnavailable: 503,
    errors.BackendFull: 503,
    errors.OutcomeUnknown: 503,
    errors.NotConfirmed: 503,
    errors.ProtocolError: 502,
}
_TITLES: Final = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    413: "Body too large",
    414: "Query too long",
    415: "Unsupported media type",
    429: "Too many requests",
    421: "Misdirected request",
    431: "Headers too large",
    500: "Internal error",
    501: "Not installed",
    503: "Service unavailable",
}


def status_of(error: errors.DelayqError) -> int:
    """Return the HTTP status of an error: that of its class, or of the nearest base class with one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


class Wrong(NamedTuple):
    """One thing that is wrong with a request: where (`#/delay`, `?limit`), and the rule it breaks."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document. `kind` is the last part of its type; `more` are members of its own."""

    status: int
    kind: str
    detail: str
    hint: str = ""
    wrong: Sequence[Wrong] = ()
    headers: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def response(self, path: str) -> Response:
        """It as the answer to a request of that path."""
        outcomes.refused(self.detail)
        title = _TITLES.get(self.status) if self.kind in _BY_STATUS.values() else None
        body: dict[str, Any] = {
            "type": f"urn:delayq:{self.kind}",
            "title": title or self.kind.replace("-", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            **({"hint": self.hint} if self.hint else {}),
            "instance": path,
            **({"errors": [one._asdict() for one in self.wrong]} if self.wrong else {}),
            **self.more,
        }
        return Response(msgspec.json.encode(body), self.status, self.headers, MEDIA_TYPE)


class Refused(Exception):
    """A request that is refused before delayq is asked."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


_BY_STATUS: Final = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    413: "body-too-large",
    414: "query-too-long",
    415: "unsupported-media-type",
    421: "misdirected-request",
    429: "too-many-requests",
    431: "headers-too-large",
    500: "internal-error",
    501: "not-installed",
    503: "service-unavailable",
}


_HINTS: Final[dict[type[errors.DelayqError], str]] = {
    errors.JobNotFound: "It may have been done already, or lie in another queue (?queue=).",
    errors.BatchNotFound: "GET /v1/batches shows those there are.",
}
"""Where those of the command line name its options."""


def plain(status: int, detail: str, hint: str = "", **headers: str) -> Problem:
    """One that its status says all about. Headers as keywords: `Retry_After="1"`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Problem(status, _BY_STATUS.get(status, "http-error"), detail, hint, headers=named)


def of_error(error: errors.DelayqError) -> Problem:
    """The problem that one of delayq's errors is."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    hint = _HINTS.get(type(error), error.hint)
    return Problem(status, kind_of(type(error)), error.message, hint, headers=headers)


def kind_of(error: type[errors.DelayqError]) -> str:
    """`InvalidDuration` is 'invalid-duration'."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower()


def add_to(app: FastAPI) -> None:
    """Let `app` answer with problems, whatever goes wrong."""
    app.add_exception_handler(errors.DelayqError, _delayq_error)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _delayq_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.DelayqError)
    problem = of_error(error)
    if problem.status >= 500:
        LOG.warning("%s %s: %s", request.method, request.url.path, error)
    return problem.response(request.url.path)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.problem.response(request.url.path)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = [Wrong(_pointer(one["loc"]), str(one["msg"])) for one in error.errors()]
    first = f"{wrong[0].pointer}: {wrong[0].detail}." if wrong else "The request cannot be read."
    return Problem(422, "invalid-input", first, wrong=wrong).response(request.url.path)


def _pointer(where: Sequence[str | int]) -> str:
    """Where in a request something stands, as `Wrong` says it."""
    source, *rest = [str(part) for part in where]
    match source:
        case "query":
            return f"?{'.'.join(rest)}"
        case "path":
            return f"/{{{'.'.join(rest)}}}"
        case "header":
            return f"{'.'.join(rest)}:"
        case _:
            return "#" + "".join(f"/{part}" for part in rest)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and _is_browser(request):
        page: Response = await request.app.state.unknown_page(request)
        return page
    details = {
        404: f"There is nothing at {request.url.path}.",
        405: f"{request.method} is no method of {request.url.path}.",
    }
    detail = details.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(allowed(request))
    problem = plain(error.status_code, detail, **headers)
    return problem.response(request.url.path)


def _is_browser(request: Request) -> bool:
    """Whether somebody looks for a page, and not for an answer of the API."""
    return not request.url.path.startswith("/v1/") and "text/html" in request.headers.get("accept", "")


def allowed(request: Request) -> list[str]:
    """The methods of all routes of a request's path; each route knows only its own."""
    found = {
        method
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return sorted(found - {"HEAD"})


async def _unexpected(request: Request, error: Exception) -> Response:
    """The last line of defence. The details are for the log, not for the caller."""
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return plain(500, "delayq met something it did not expect.", "Its log says more.").response(request.url.path)
