"""How a route says what it takes and answers, so that OpenAPI can tell: structs in, the words of FastAPI out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

JSON: Final = "application/json"
REF: Final = "#/components/schemas/{name}"
Struct = Any
"""A msgspec struct's class; there is no type for classes of them that mypy and FastAPI both take."""


def ref(kind: Struct) -> dict[str, str]:
    """Where OpenAPI has the schema of a struct."""
    return {"$ref": REF.format(name=kind.__name__)}


def takes(body: Struct, example: Any = None, *, required: bool = True) -> dict[str, Any]:
    """For `openapi_extra`: the body that a route reads."""
    content: dict[str, Any] = {"schema": ref(body)}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": required, "content": {JSON: content}}}


def answers(told: Mapping[int, tuple[str, Struct]], example: Any = None) -> dict[int | str, dict[str, Any]]:
    """For `responses`: what a route answers when all is well."""
    found: dict[int | str, dict[str, Any]] = {}
    for status, (description, kind) in told.items():
        content: dict[str, Any] = {"schema": ref(kind)}
        if example is not None:
            content["example"] = example
        found[status] = {"description": description, "content": {JSON: content}}
    return found
