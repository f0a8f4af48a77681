"""Query parameters that no route knows are refused: a filter with a slip of the pen must not list everything.

So are those that stand there twice and take one value: which of the two counts is for the caller to say.
"""

from __future__ import annotations

from typing import get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant

from delayq.http.problems import Problem, Refused, Wrong


async def known_query(request: Request) -> None:
    """A dependency. Raises `Refused` for a parameter that the route does not have, or takes only once."""
    if not request.scope["query_string"]:
        return
    known = names_of(request.scope["route"].dependant)
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise _refused(name, "There is no such parameter here.")
        if name in seen and not known[name]:
            raise _refused(name, "It stands there twice, and takes one value.")
        seen.add(name)


def names_of(dependant: Dependant) -> dict[str, bool]:
    """All query parameters, those of dependencies among them, and whether each may be repeated."""
    names = {field.alias: _takes_many(field.field_info.annotation) for field in dependant.query_params}
    for inner in dependant.dependencies:
        names |= names_of(inner)
    return names


def _takes_many(annotation: object) -> bool:
    return any(get_origin(kind) is list for kind in (annotation, *get_args(annotation)))


def _refused(name: str, rule: str) -> Refused:
    pointer = f"?{name[:100]}"
    return Refused(Problem(422, "invalid-input", f"{pointer}: {rule}", wrong=[Wrong(pointer, rule)]))
