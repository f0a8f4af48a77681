"""Query parameters that no route knows are refused: a filter with a slip of the pen must not list everything."""

from __future__ import annotations

from fastapi import Request
from fastapi.dependencies.models import Dependant

from delayq.http.problems import Problem, Refused, Wrong


async def known_query(request: Request) -> None:
    """A dependency. Raises `Refused` for a parameter that the route does not have."""
    known = request.scope["route"].dependant
    unknown = sorted(set(request.query_params) - names_of(known)) if request.scope["query_string"] else []
    if unknown:
        pointer, rule = f"?{unknown[0][:100]}", "There is no such parameter here."
        raise Refused(Problem(422, "invalid-input", f"{pointer}: {rule}", wrong=[Wrong(pointer, rule)]))


def names_of(dependant: Dependant) -> set[str]:
    """The names of all query parameters, those of dependencies among them."""
    names = {field.alias for field in dependant.query_params}
    return names.union(*(names_of(inner) for inner in dependant.dependencies))
