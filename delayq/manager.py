"""Connections by name, and the table that says which job goes over which of them to which queue.

    manager = Manager(Settings())
    manager.connection()                    the default one, made when first asked for
    manager.connection("reports")           [connections.reports] of the settings; "sync" and "null" need none
    manager.extend("carrier-pigeon", make)  a driver of your own
    manager.route(Report, connection="reports");  manager.route("order.*", queue="orders")
    manager.forward("orders", "orders-2")

Jobs ask the manager; it knows drivers, and no job.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias
from weakref import WeakKeyDictionary

from delayq.core.errors import ConfigError
from delayq.core.names import check_queue
from delayq.core.options import Options
from delayq.core.routes import NOWHERE, Route, find
from delayq.core.spec import JobSpec
from delayq.drivers.capabilities import ALSO_DATABASE
from delayq.drivers.checked import Factory, checked
from delayq.drivers.connection import AsyncBatchStore, BatchStore, Connection, Joins, KeepsBatches
from delayq.drivers.factories import Hands, Makers, made_by
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.ref_home import BrokerHome
from delayq.drivers.sync import Runner
from delayq.drivers.waiting import Waiting
from delayq.settings import Settings
from delayq.settings.tables import DEFAULT, ConnectionSettings

Between: TypeAlias = Callable[[str, ConnectionSettings, Options, Callable[[], Connection]], Connection]
"""Makes a connection in the place of another: as a `Factory`, and given how to get the one it stands for."""
Stamp: TypeAlias = Callable[[JobSpec], Mapping[str, str]]

JOINING = ("outbox", "database")
"""The drivers that write in a transaction of the application's."""


class CommitHook(Protocol):
    """Knows the database transaction under way, and runs something after it."""

    def current(self) -> object | None:
        """The session under way in this thread or coroutine, where the application has such a thing; else None."""

    def after_commit(self, waiting: Waiting, session: object, *, named: bool) -> bool:
        """Keep `waiting` until the transaction of `session` ends, as `delayq.drivers.waiting` says.

        `named`: the dispatch itself named the session, which then has a transaction from here on. False: none is open.
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One that makes connections in the place of others, and those it has made for each manager."""

    between: Between
    only: Manager | None
    made: WeakKeyDictionary[Manager, dict[str, Connection]] = field(default_factory=WeakKeyDictionary)


_interposed: list[_Layer] = []


@contextmanager
def interposed(between: Between, *, only: Manager | None = None) -> Iterator[None]:
    """Let `between` make the connections that managers are asked for inside the block, in every thread; for tests.

    It holds for all managers, those made inside the block included, or for one `only`. Blocks may be nested: what an
    inner one stands for is the outer one's. What was made inside is forgotten at the end; its maker closes it.
    """
    layer = _Layer(between, only)
    _interposed.append(layer)
    try:
        yield
    finally:
        _interposed.remove(layer)


class Manager:
    """The connections of one application. Safe to share between threads.

    `runner` runs the jobs of `sync` connections; the job API brings its own.
    """

    def __init__(self, settings: Settings, runner: Runner | None = None, hands: Hands | None = None) -> None:
        self.settings = settings
        self.commit_hook: CommitHook | None = None
        self.stamps: list[Stamp] = []
        self._makers = Makers(settings, hands or Hands(runner), self.connection, self._given)
        self._lock = threading.RLock()
        self._made: dict[str, Connection] = {}
        self._factories: dict[str, Factory] = dict(self._makers.factories)
        self._known = {DEFAULT: ConnectionSettings(), **_without_settings(), **settings.connections}
        self._routes = dict(settings.routes)
        self._kinds: dict[type, Route] = {}
        self._forwards = dict(settings.forwards)
        self._forwards_of: dict[str, dict[str, str]] = {}

    # -- connections -------------------------------------------------------------------------------------------------

    def connection(self, name: str | None = None) -> Connection:
        """The connection of that name, or the default one; made once. Raises `ConfigError` for a name nobody knows."""
        name = self.settings.connection if name is None else name
        if _interposed:
            return self._beneath(name, list(_interposed))
        made = self._made.get(name)
        return self._own(name) if made is None else made

    def _own(self, name: str) -> Connection:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def _beneath(self, name: str, layers: list[_Layer]) -> Connection:
        """The connection that the innermost of `layers` makes, which may ask for the one that the others make."""
        while layers and layers[-1].only not in (None, self):
            layers = layers[:-1]
        if not layers:
            return self._own(name)
        *others, layer = layers
        with self._lock:
            made = layer.made.setdefault(self, {})
            if name not in made:
                given = self._given(name)
                beneath = partial(self._beneath, name, others)
                made[name] = layer.between(name, given, self._options(name, given), beneath)
            return made[name]

    def batches(self, name: str | None = None) -> BatchStore:
        """Where that connection keeps batches. Raises `ConfigError` for one that keeps none."""
        return self._keeper(name).batches

    def abatches(self, name: str | None = None) -> AsyncBatchStore:
        """As `batches`, for asyncio."""
        return self._keeper(name).abatches

    def _keeper(self, name: str | None) -> KeepsBatches:
        connection = self.connection(name)
        if isinstance(connection, KeepsBatches):
            return connection
        raise ConfigError(
            f"The connection {connection.name!r} keeps no batches.",
            hint=ALSO_DATABASE,
        )

    def backend(self, name: str | None = None) -> Backend | None:
        """What workers serve of that connection; None for one to Redis, which has a driver of its own.

        Made once, so before a worker forks. Raises `ConfigError` for a connection that no worker can serve.
        """
        connection = self.connection(name)
        if isinstance(connection, RedisConnection):
            return None
        if not isinstance(connection, BrokerConnection):
            raise ConfigError(
                f"No worker can serve the connection {connection.name!r}: it keeps no jobs.",
                hint="Name one that does, such as --connection default.",
            )
        connection.backend.refuse_worker(connection.name)
        return connection.backend

    def waits_for_commit(self, name: str | None) -> bool:
        """Whether jobs on that connection wait for a commit unless they say otherwise."""
        given = self._known.get(self.settings.connection if name is None else name)
        return given is not None and given.after_commit

    def joins(self, name: str | None, session: object | None = None) -> bool:
        """Whether that connection writes jobs in the transaction of `session`: always, if it is an outbox.

        A database does when the session is one of its own.
        """
        given = self._known.get(self.settings.connection if name is None else name)
        if given is None or given.driver not in JOINING:
            return False
        if given.driver == "outbox":
            return True
        connection: object = None if session is None else self.connection(name)
        return isinstance(connection, Joins) and connection.takes(session)

    def may_join(self, name: str | None) -> bool:
        """Whether there are sessions that this connection writes in."""
        given = self._known.get(self.settings.connection if name is None else name)
        return given is not None and given.driver in JOINING

    def options_of(self, name: str | None) -> Options:
        """What the engine knows of that connection. Raises `ConfigError` for a name nobody knows."""
        name = self.settings.connection if name is None else name
        return self._options(name, self._given(name))

    def client_options(self) -> Options:
        """What a client of the default connection knows: also the routes, since it sends without this manager."""
        return replace(self.options_of(None), routes=self._routes)

    def given(self, name: str | None = None) -> ConnectionSettings:
        """What the settings say of that connection. Raises `ConfigError` for a name nobody knows."""
        return self._given(self.settings.connection if name is None else name)

    def connected(self, name: str) -> bool:
        """Whether that connection has been made."""
        return name in self._made

    def names(self) -> tuple[str, ...]:
        """All names that may be asked for."""
        return tuple(self._known)

    def extend(self, driver: str, factory: Factory) -> None:
        """Let `factory` make the connections of that driver, which no setting could name before.

        Raises `ConfigError` for what is no factory; so does the first use of one that makes no driver.
        """
        self._factories[driver] = checked(driver, factory, "manager.extend")

    def define(self, name: str, settings: ConnectionSettings) -> None:
        """A connection that stands in no file. Raises `ConfigError` when it has been made already."""
        if name in self._made:
            raise ConfigError(f"The connection {name!r} is in use.", hint="Define it before the first job is sent.")
        self._known[name] = settings

    def interposed(self, between: Between) -> AbstractContextManager[None]:
        """As the function `interposed`, for this manager alone."""
        return interposed(between, only=self)

    def close(self) -> None:
        """Close all connections; they may be used again."""
        for connection in list(self._made.values()):
            connection.close()

    async def aclose(self) -> None:
        """Close what was opened in this event loop."""
        for connection in list(self._made.values()):
            await connection.aclose()

    # -- where to ----------------------------------------------------------------------------------------------------

    def route(self, what: str | type, *, queue: str | None = None, connection: str | None = None) -> None:
        """Send jobs that do not say where to: by a pattern of names, or by class (also those derived from it)."""
        if queue is None and connection is None:
            raise ConfigError(f"The route of {what!r} leads nowhere.", hint="Give queue=, connection=, or both.")
        route = Route(None if queue is None else check_queue(queue), connection)
        if isinstance(what, str):
            self._routes[what] = route
        else:
            self._kinds[what] = route

    def route_of(self, name: str, kinds: Sequence[type] = ()) -> Route:
        """The route of a job: that of the nearest of its classes, else of the first pattern that matches its name."""
        for kind in kinds:
            if kind in self._kinds:
                return self._kinds[kind]
        return find(self._routes, name) if self._routes else NOWHERE

    def forward(self, queue: str, to: str, *, connection: str | None = None) -> None:
        """Send what is meant for `queue` to `to` from now on, on one connection or all.

        A verb with a job's id asks both queues. Lists, pauses and workers mean the queue they name.
        """
        forwards = self._forwards if connection is None else self._forwards_of.setdefault(connection, {})
        if check_queue(to) in forwards or queue in forwards.values():
            raise ConfigError(f"{queue!r} cannot go to {to!r}: one is forwarded already.", hint="Name where it ends.")
        forwards[check_queue(queue)] = to

    # -- hooks -------------------------------------------------------------------------------------------------------

    def stamp(self, stamp: Stamp) -> None:
        """Let `stamp` add headers to every job that is dispatched; the dispatcher's own headers win."""
        self.stamps.append(stamp)

    def on_commit(self, hook: CommitHook) -> None:
        """Make `after_commit` work: the hook knows the transactions of your database."""
        self.commit_hook = hook

    def take_over(self, other: Manager) -> None:
        """Know what an application told `other`: hooks, drivers, routes, connections. Its own settings go before."""
        self.commit_hook, self.stamps = other.commit_hook, other.stamps
        self._factories = {**other._factories, **self._factories}
        self._known = {**other._known, **self._known}
        self._routes, self._kinds = {**other._routes, **self._routes}, other._kinds
        self._forwards, self._forwards_of = {**other._forwards, **self._forwards}, other._forwards_of

    # -- making ------------------------------------------------------------------------------------------------------

    def _given(self, name: str) -> ConnectionSettings:
        if name not in self._known:
            known = ", ".join(self._known)
            raise ConfigError(f"There is no connection {name!r}; known are {known}.", hint=f"Add [connections.{name}].")
        return self._known[name]

    def _make(self, name: str) -> Connection:
        given = self._given(name)
        factory = self._factories.get(given.driver) or made_by(given.driver, name, known=self._factories)
        made = factory(name, given, self._options(name, given))
        connection = BrokerConnection(name, made, self._options(name, given)) if isinstance(made, Backend) else made
        if isinstance(connection, BrokerConnection):
            connection.home = BrokerHome(connection)
        return connection

    def _options(self, name: str, given: ConnectionSettings) -> Options:
        base = self.settings.options()
        return replace(
            base,
            prefix=given.prefix or base.prefix,
            queue=given.queue or base.queue,
            routes={},  # the manager has routed by then
            forwards=ChainMap(self._forwards_of.setdefault(name, {}), self._forwards),
            connection=name,
        )


def _without_settings() -> dict[str, ConnectionSettings]:
    return {driver: ConnectionSettings(driver=driver) for driver in ("sync", "null", "deferred", "background")}
