"""The connections of one application, by name, and the destination of each job: its connection and its queue.

    manager = Manager()                                    read the settings: DELAYQ_*, delayq.toml
    manager.connection().client.cancel("order-42")         use the default connection
    manager.connection("reports")                          use [connections.reports] of the settings
    manager.route("order.*", queue="orders")               add a route, like [routes] of the settings

`dispatch` sends a job through the current manager. If a program sets no manager, one is made from the settings.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from delayq.backends.registry import backend_of
from delayq.core.job_spec import JobSpec
from delayq.core.names import check_queue
from delayq.settings.connections import ConnectionSettings, Route, Routes, destination
from delayq.settings.model import Settings, load_settings

if TYPE_CHECKING:  # clients import redis-py, which a program that only declares jobs does not need
    from delayq.client import AsyncDelayQ, DelayQ

MakeHeaders = Callable[[JobSpec], Mapping[str, str]]


class Connection:
    """One connection, with a blocking client and a client for asyncio. Each client is made when it is first used."""

    def __init__(self, name: str, settings: Settings, routes: Routes, *, after_commit: bool = False) -> None:
        """`after_commit`: the jobs of this connection wait for the commit of a database transaction."""
        self.name = name
        self.settings = settings
        self.after_commit = after_commit
        self.backend = backend_of(settings)
        self._routes = routes

    @cached_property
    def client(self) -> "DelayQ":
        """The blocking client. Threads share it. Raises ConfigError."""
        from delayq.client import DelayQ

        return DelayQ.over(self.backend, self._routes)

    @cached_property
    def aclient(self) -> "AsyncDelayQ":
        """The client for asyncio. Event loops share it. Raises ConfigError."""
        from delayq.client import AsyncDelayQ

        return AsyncDelayQ.over(self.backend, self._routes)

    def close(self) -> None:
        """Close the connections of the blocking client. For the other client, use `await aclient.close()`."""
        if "client" in vars(self):
            self.client.close()


class Manager:
    """The connections and routes of one application. Threads may share a manager.

    `settings`: None = the settings of the project. Raises ConfigError.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = load_settings() if settings is None else settings
        self._routes = Routes(self.settings.routes)
        self._connections: dict[str, Connection] = {}
        self._headers: list[MakeHeaders] = []
        self._lock = threading.Lock()

    def connection(self, name: str | None = None) -> Connection:
        """Return the connection with this name; None = the default connection.

        Later calls return the same object, unless `define` has replaced the connection. Raises ConfigError if the name
        is unknown.
        """
        name = name or self.settings.connection
        with self._lock:
            if name not in self._connections:
                self._connections[name] = Connection(
                    name,
                    self.settings.of_connection(name),
                    self._routes,
                    after_commit=bool(name) and self.settings.connections[name].after_commit,
                )
            return self._connections[name]

    def define(self, name: str, **table: Any) -> None:
        """Define a connection. `table` has the keys of [connections.NAME] in the settings: driver, url, prefix, queue,
        after_commit.

        A connection that has the same name is replaced. Raises pydantic.ValidationError.
        """
        connections = {**self.settings.connections, name: ConnectionSettings(**table)}
        with self._lock:
            self.settings = self.settings.model_copy(update={"connections": connections})
            self._connections.pop(name, None)

    def route(self, pattern: str, *, queue: str | None = None, connection: str | None = None) -> None:
        """Send jobs whose names match a pattern ('order.*') to a queue, a connection, or both.

        The queue of the route applies if neither the call nor the declaration of the job names a queue. The same is
        true of the connection. A new route comes before existing routes. Clients of this manager use the route too.
        Raises InvalidInput if `queue` is not a valid name.
        """
        self._routes.add(pattern, Route(queue=None if queue is None else check_queue(queue), connection=connection))

    def destination(
        self, job_name: str, *, queue: str | None = None, connection: str | None = None
    ) -> tuple[Connection, str]:
        """Return the destination of a job: a connection and a queue.

        `queue` and `connection` come from the call, or else from the declaration of the job; None = neither of them
        names one. A route or the settings then decide. Raises ConfigError if the connection is unknown.
        """
        to = destination(
            job_name,
            self._routes,
            queue=queue,
            connection=connection,
            default_connection=self.settings.connection,
        )
        found = self.connection(to.connection)
        return found, found.settings.queue if to.queue is None else to.queue

    def add_headers(self, make: MakeHeaders) -> None:
        """Add headers to every dispatched job, for example the ids of a trace.

        `make` gets the JobSpec and returns the headers. Headers of the dispatch itself override them.
        """
        self._headers.append(make)

    def headers_for(self, spec: JobSpec) -> dict[str, str]:
        """Return the headers that `add_headers` adds to a job."""
        return {name: value for make in self._headers for name, value in make(spec).items()}

    def close(self) -> None:
        """Close the connections of all blocking clients."""
        for connection in self._connections.values():
            connection.close()


_of_program: Manager | None = None
_of_context: Final[ContextVar[Manager | None]] = ContextVar("delayq_manager", default=None)
_making = threading.Lock()


def current_manager() -> Manager:
    """Return the manager of this context, or else of the program. If neither exists, make one from the settings."""
    manager = _of_context.get() or _of_program
    if manager is not None:
        return manager
    with _making:
        if _of_program is None:
            set_manager(Manager())
    return current_manager()


def manager_that_was_set() -> Manager | None:
    """Return the manager of the program, or None if it was neither set nor made yet."""
    return _of_program


def set_manager(manager: Manager | None) -> None:
    """Set the manager of the program, for all its threads. None = make one from the settings when it is needed."""
    global _of_program  # noqa: PLW0603
    _of_program = manager


@contextmanager
def using_manager(manager: Manager) -> Iterator[Manager]:
    """Use a manager inside the `with` block, only in this thread or task."""
    outside = _of_context.get()
    _of_context.set(manager)
    try:
        yield manager
    finally:
        _of_context.set(outside)
