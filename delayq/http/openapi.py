"""The description of the API: what FastAPI knows of the routes, with the schemas of the structs they speak in."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from delayq.core.control import WorkerOrder
from delayq.http.api.models import bulk, failed, health, jobs, queues, reservations
from delayq.http.documented import REF
from delayq.http.problems import MEDIA_TYPE

_DESCRIBED: Final = ("/v1/", "/livez", "/readyz")
"""Pages are for people, and metrics have a format of their own."""
_TAGS: Final = (
    ("jobs", "Make, look at, move, start and stop jobs."),
    ("queues", "How full queues are; pause and resume them."),
    ("pull", "Take jobs and settle them, for services without a Redis client."),
    ("batches", "Many jobs as one."),
    ("workers", "Who works, and who did what."),
    ("health", "For orchestrators."),
)
_ABOUT: Final = (
    "Durations are written like 15m, 1h30m or PT15M, times as RFC 3339. Every refusal and every failure is a problem "
    "document (RFC 9457). Callers need an API key (`Authorization: Bearer dq_…`) where the server has a file of keys."
)


class Wrong(msgspec.Struct):
    """One thing that is wrong with a request: `#/delay` in the body, `?limit` in the query, `/{token}` in the path."""

    pointer: str
    detail: str


class Problem(msgspec.Struct, kw_only=True):
    """A refusal or a failure. `hint` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    hint: str | msgspec.UnsetType = msgspec.UNSET
    errors: list[Wrong] | msgspec.UnsetType = msgspec.UNSET


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application; made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _made(app)
    return app.openapi_schema


def _made(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version=app.openapi_version,
        summary=app.summary,
        description=_ABOUT,
        routes=app.routes,
        tags=[{"name": name, "description": about} for name, about in _TAGS],
    )
    document["paths"] = {path: told for path, told in document["paths"].items() if path.startswith(_DESCRIBED)}
    structs = [kind for module in (jobs, failed, bulk, health, queues, reservations) for kind in _structs(module)]
    _, schemas = msgspec.json.schema_components([*structs, Problem, WorkerOrder], ref_template=REF)
    components = document.setdefault("components", {})
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}}
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            told = operation["responses"]
            told.pop("422", None)  # FastAPI's own shape of it
            if path.startswith("/v1/"):
                told["4XX"] = {"description": "Refused: the request is wrong, or not allowed now.", **problem}
                operation["security"] = [{"key": []}, {}]
            told["5XX"] = {"description": "Redis, or the server, cannot just now.", **problem}
    return document


def _structs(module: Any) -> list[Any]:
    """The structs that a module defines."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    return [kind for kind in found if kind.__module__ == module.__name__]
