"""Where jobs go that do not say so themselves: name patterns to a queue, a connection, or both."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias


class Route(NamedTuple):
    """A queue, a connection, or both; None leaves it to what comes after: the connection's own default."""

    queue: str | None = None
    connection: str | None = None


Routes: TypeAlias = Mapping[str, Route]
"""Patterns of job names ('order.*') and their routes; the first match in order wins."""

NOWHERE = Route()


def find(routes: Routes, name: str) -> Route:
    """The route of a job name; an empty one when no pattern matches."""
    for pattern, route in routes.items():
        if fnmatchcase(name, pattern):
            return route
    return NOWHERE
