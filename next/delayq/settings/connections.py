"""Connections by name, and where jobs go that do not say so themselves: [connections.NAME] and [routes]."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

from delayq.core.names import check_queue

QueueName = Annotated[str, AfterValidator(check_queue)]


class ConnectionSettings(BaseModel):
    """One table [connections.NAME]. What it leaves out is that of the application."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    driver: Literal["redis"] = "redis"
    url: SecretStr | None = None
    prefix: str | None = None
    queue: QueueName | None = None


class Route(BaseModel):
    """Where the jobs of a name go: a queue, a connection, or both. None leaves it to what comes after."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: QueueName | None = None
    connection: str | None = None


Routes = Mapping[str, Route]
"""Patterns of job names, such as 'order.*', and their routes. The first match in order counts."""


def route_of(routes: Routes, job_name: str) -> Route:
    """Return the route of a job; an empty one when no pattern matches."""
    return next((route for pattern, route in routes.items() if fnmatchcase(job_name, pattern)), Route())
