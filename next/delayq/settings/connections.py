"""The tables of the settings file: named connections, [connections.NAME], and default routes of jobs, [routes]."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from delayq.settings.types import Prefix, QueueName, Url


class ConnectionSettings(BaseModel):
    """One table [connections.NAME]. An omitted url, prefix or queue is taken from the other settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    driver: Literal["redis"] = "redis"
    url: Url = None
    prefix: Prefix | None = None
    queue: QueueName | None = None


class Route(BaseModel):
    """The queue and connection for jobs whose name matches a pattern. None means that the route does not choose.

    In a settings file, a plain string is the name of a queue, as in "order.*" = "orders".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: QueueName | None = None
    connection: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: Any) -> Any:
        return {"queue": value} if isinstance(value, str) else value


Routes = Mapping[str, Route]
"""Routes by a pattern of job names, such as 'order.*'. The first matching pattern is used."""


def route_of(routes: Routes, job_name: str) -> Route:
    """Return the route of a job, or an empty route if no pattern matches."""
    return next((route for pattern, route in routes.items() if fnmatchcase(job_name, pattern)), Route())
