"""The connections of one application, by name, and which job goes where.

    manager = Manager()                                    the settings: DELAYQ_*, delayq.toml
    manager.connection().client.cancel("order-42")         the default connection
    manager.connection("reports")                          [connections.reports] of the settings
    manager.route("order.*", queue="orders")               as [routes] does

Jobs ask the current manager where to go. A program that sets none gets one from the settings.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final

from delayq.backends.registry import backend_of
from delayq.client import AsyncDelayQ, DelayQ
from delayq.core.job_spec import JobSpec
from delayq.core.names import check_queue
from delayq.settings.connections import ConnectionSettings, Route, Routes, destination
from delayq.settings.model import Settings, load_settings

MakeHeaders = Callable[[JobSpec], Mapping[str, str]]


class Connection:
    """One connection: `client` blocks, `aclient` is awaited. Each is made when it is first used."""

    def __init__(self, name: str, settings: Settings, routes: Routes) -> None:
        self.name = name
        self.settings = settings
        self.backend = backend_of(settings)
        self._routes = routes

    @cached_property
    def client(self) -> DelayQ:
        """The blocking client; threads share it. Raises ConfigError."""
        return DelayQ.over(self.backend, self._routes)

    @cached_property
    def aclient(self) -> AsyncDelayQ:
        """The client for asyncio; event loops share it. Raises ConfigError."""
        return AsyncDelayQ.over(self.backend, self._routes)

    def close(self) -> None:
        """Close the connections of the blocking client; `await aclient.close()` closes those of the other."""
        if "client" in vars(self):
            self.client.close()


class Manager:
    """The connections and routes of one application. Threads may share one."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = load_settings() if settings is None else settings
        self._routes = Routes(self.settings.routes)
        self._connections: dict[str, Connection] = {}
        self._headers: list[MakeHeaders] = []
        self._lock = threading.Lock()

    def connection(self, name: str | None = None) -> Connection:
        """Return a connection, or the default one; made once. Raises ConfigError for an unknown name."""
        name = name or self.settings.connection
        with self._lock:
            if name not in self._connections:
                self._connections[name] = Connection(name, self.settings.of_connection(name), self._routes)
            return self._connections[name]

    def define(self, name: str, **table: Any) -> None:
        """Define a connection as [connections.NAME] does: url, prefix, queue. Raises pydantic.ValidationError."""
        connections = {**self.settings.connections, name: ConnectionSettings(**table)}
        with self._lock:
            self.settings = self.settings.model_copy(update={"connections": connections})
            self._connections.pop(name, None)

    def route(self, pattern: str, *, queue: str | None = None, connection: str | None = None) -> None:
        """Send the jobs whose names match a pattern ('order.*') to a queue, a connection, or both.

        The route is used for jobs whose call and declaration name none. It comes before existing routes, and clients of
        this manager follow it too. Raises InvalidInput for a queue that breaks the grammar.
        """
        self._routes.add(pattern, Route(queue=None if queue is None else check_queue(queue), connection=connection))

    def destination(
        self, job_name: str, *, queue: str | None = None, connection: str | None = None
    ) -> tuple[Connection, str]:
        """Return the connection and the queue to which a job is sent.

        `queue` and `connection` are those of the call, or else those that the job declares; None = neither names one.
        Raises ConfigError for an unknown connection.
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
        """Give every job that is dispatched headers, such as those of a trace.

        Headers that a dispatch says go before them.
        """
        self._headers.append(make)

    def headers_for(self, spec: JobSpec) -> dict[str, str]:
        """Return the headers that are added to a job."""
        return {name: value for make in self._headers for name, value in make(spec).items()}

    def close(self) -> None:
        """Close the blocking connections."""
        for connection in self._connections.values():
            connection.close()


_of_program: Manager | None = None
_of_context: Final[ContextVar[Manager | None]] = ContextVar("delayq_manager", default=None)
_making = threading.Lock()


def current_manager() -> Manager:
    """Return the manager of this context, or that of the program, which is made from the settings if there is none."""
    manager = _of_context.get() or _of_program
    if manager is not None:
        return manager
    with _making:
        if _of_program is None:
            set_manager(Manager())
    return current_manager()


def manager_that_was_set() -> Manager | None:
    """Return the manager of the program; None when nothing has asked for one or set one."""
    return _of_program


def set_manager(manager: Manager | None) -> None:
    """Make a manager that of the program, in all its threads."""
    global _of_program  # noqa: PLW0603
    _of_program = manager


@contextmanager
def using_manager(manager: Manager) -> Iterator[Manager]:
    """Use a manager inside the block, in this thread or task."""
    outside = _of_context.get()
    _of_context.set(manager)
    try:
        yield manager
    finally:
        _of_context.set(outside)
