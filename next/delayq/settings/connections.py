"""The tables of the settings file: named connections, [connections.NAME], and default routes of jobs, [routes]."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator

from delayq.settings.types import Driver, Prefix, QueueName, Url


class ConnectionSettings(BaseModel):
    """One table [connections.NAME]. An omitted url, prefix or queue is taken from the settings outside the tables.

    `after_commit`: the jobs of this connection wait for the commit of a database transaction.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    driver: Driver = "redis"
    url: Url = None
    prefix: Prefix | None = None
    queue: QueueName | None = None
    after_commit: bool = False


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


class Routes:
    """Routes by a pattern of job names, such as 'order.*'. The first matching pattern is used.

    Threads may share one Routes object.
    """

    def __init__(self, table: Mapping[str, Route]) -> None:
        self.table = dict(table)

    def add(self, pattern: str, route: Route) -> None:
        """Add a route in front of the other routes. The new route replaces a route with the same pattern."""
        self.table = {pattern: route, **{known: one for known, one in self.table.items() if known != pattern}}

    def of(self, job_name: str) -> Route:
        """Return the route of a job, or an empty route if no pattern matches."""
        return next((route for pattern, route in self.table.items() if fnmatchcase(job_name, pattern)), Route())


class Destination(NamedTuple):
    """The name of the connection to which a job is sent, and the queue; None = default queue of the connection."""

    connection: str
    queue: str | None


def destination(
    job_name: str, routes: Routes, *, queue: str | None, connection: str | None, default_connection: str
) -> Destination:
    """Decide where a job is sent.

    `queue` and `connection` are those of the call, or else those that the job declares; None = neither names one. The
    route of the job comes next, then the default connection.
    """
    route = routes.of(job_name) if queue is None or connection is None else Route()
    return Destination(
        connection=(route.connection or default_connection) if connection is None else connection,
        queue=route.queue if queue is None else queue,
    )
