"""Connections by name, and where jobs go that do not say so themselves: [connections.NAME] and [routes]."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from delayq.settings.types import Prefix, QueueName, Url


class ConnectionSettings(BaseModel):
    """One table [connections.NAME]. What it leaves out is that of the application."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    driver: Literal["redis"] = "redis"
    url: Url = None
    prefix: Prefix | None = None
    queue: QueueName | None = None


class Route(BaseModel):
    """Where the jobs of a name go: a queue, a connection, or both. None leaves it to what comes after.

    In a settings file, a text is a queue: "order.*" = "orders".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: QueueName | None = None
    connection: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: Any) -> Any:
        return {"queue": value} if isinstance(value, str) else value


Routes = Mapping[str, Route]
"""Patterns of job names, such as 'order.*', and their routes. The first match in order counts."""


def route_of(routes: Routes, job_name: str) -> Route:
    """Return the route of a job; an empty one when no pattern matches."""
    return next((route for pattern, route in routes.items() if fnmatchcase(job_name, pattern)), Route())
