"""The two routes that are called most, without what FastAPI does around each call: that took half of their time.

FastAPI still describes them; these stand before it and answer.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response
from starlette.routing import Match, Route
from starlette.types import Scope as Asked

from delayq.core.api_keys import Scope
from delayq.http.access import Needs
from delayq.http.api import batch_create, jobs
from delayq.http.bodies import invalid
from delayq.http.problems import Refused

_WRITER: Final = Needs(Scope.WRITE)
_LONGEST_KEY: Final = 255


class Short(Route):
    """A route that stands before FastAPI's and has nothing to say about other methods: those know which there are."""

    def matches(self, scope: Asked) -> tuple[Match, Asked]:
        found, more = super().matches(scope)
        return (found, more) if found is Match.FULL else (Match.NONE, {})


async def create(request: Request) -> Response:
    """POST /v1/jobs"""
    caller = await _WRITER(request)
    return await jobs.create(request, request.app.state.service, caller, _key(request))


async def create_many(request: Request) -> Response:
    """POST /v1/jobs/batch"""
    caller = await _WRITER(request)
    return await batch_create.create_many(request, request.app.state.service, caller, _key(request))


def routes() -> list[Short]:
    """Both, to be tried first."""
    return [
        Short("/v1/jobs", create, methods=["POST"]),
        Short("/v1/jobs/batch", create_many, methods=["POST"]),
    ]


def _key(request: Request) -> str | None:
    """The Idempotency-Key. Raises `Refused` for one of a wrong length, and for a query: these routes take none."""
    if request.scope["query_string"]:
        for name in request.query_params:
            raise Refused(invalid(f"?{name[:100]}", "There is no such parameter here"))
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise Refused(invalid("Idempotency-Key:", f"It has 1 to {_LONGEST_KEY} characters"))
    return key
