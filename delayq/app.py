"""The composition root: the only place where settings become connectors, clients, drivers and workers.

    settings ──▶ Options ───────────────────────────────▶ what verbs and loops work with
       │
       ├─ url ─────────────────────────────▶ Connector ─▶ Client · driver ─▶ loops · worker
       └─ no url ─▶ the embedded server ─────▲

Everything below takes what it needs as arguments; everything above (the command line, `DelayQ()`) asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from delayq.core.endpoint import Endpoint
from delayq.core.errors import AWAY, ConfigError, DelayqError, UnsafeSetup
from delayq.core.events import Listener
from delayq.core.outcome import Policy
from delayq.core.routes import Route, Routes
from delayq.drivers.background import BackgroundConnection
from delayq.drivers.base import Driver
from delayq.drivers.factories import KEEP_NOTHING
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.desk import BrokerDesk, Sender
from delayq.drivers.serving.driver import BrokerDriverFactory
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.jobs.current import make_manager, replace_manager
from delayq.jobs.registry import Registry, current, load_app
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.loops.served import Roll
from delayq.loops.vitals import Beating, Vitals
from delayq.manager import DEFAULT, Manager
from delayq.metrics.opening import open_stand
from delayq.redis.aio import AsyncClient
from delayq.redis.checkup import eviction_policy
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.opening import open_connector
from delayq.settings import Settings
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import DriverFactory, Plan, never
from delayq.worker.supervisor import Supervisor


def connection_of(settings: Settings) -> str:
    """The name of the connection that commands and workers mean: what `--connection` says, else the settings' default.

    A default that keeps no jobs (an outbox, sync) is for those who dispatch; it is passed over for the Redis of the
    settings.
    """
    name = settings.connection
    if settings.origin_of("connection") == "flag":
        return name
    given = settings.connections.get(name)
    return DEFAULT if name in KEEP_NOTHING or (given is not None and given.driver in KEEP_NOTHING) else name


def _plain(settings: Settings, name: str) -> bool:
    """Whether that is simply the Redis of the settings."""
    return name == DEFAULT and DEFAULT not in settings.connections


def on_redis(settings: Settings) -> Settings:
    """The settings with the Redis of the connection that is meant. Raises `ConfigError` where it is none."""
    name = connection_of(settings)
    if _plain(settings, name):
        return settings
    given = make_manager(settings).given(name)
    if given.driver != "redis":
        raise ConfigError(
            f"The connection {name!r} is {given}, and this works on connections to Redis alone.",
            hint="docs/connections.md says what each driver can do.",
        )
    changes = {"url": given.url, "prefix": given.prefix, "queue": given.queue}
    return settings.model_copy(update={word: value for word, value in changes.items() if value is not None})


def open_client(settings: Settings) -> Client:
    """All verbs, blocking, on the Redis that is meant. Close it, or use it in a `with`. Raises as `on_redis`."""
    settings = on_redis(settings)
    return Client(open_connector(settings), settings.options())


def open_async_client(settings: Settings) -> AsyncClient:
    """As `open_client`, awaited. Close it with `await client.close()`."""
    settings = on_redis(settings)
    return AsyncClient(open_connector(settings), settings.options())


def open_desk(settings: Settings) -> Client | BrokerDesk:
    """What people ask and do about jobs, on the connection that is meant. Close it, or use it in a `with`.

    Raises `ConfigError` for a connection that keeps no jobs.
    """
    name = connection_of(settings)
    if _plain(settings, name):
        return open_client(settings)
    manager = make_manager(settings)
    connection = manager.connection(name)
    if not isinstance(connection, BrokerConnection):
        return open_client(settings)
    options = replace(connection.options, routes=_queues(settings))
    return BrokerDesk(BrokerConnection(name, connection.backend, options))


def open_sender(settings: Settings) -> Client | BrokerDesk | Sender:
    """Where jobs are handed in: any connection, also one that keeps none. Use it in a `with`."""
    name = settings.connection if settings.origin_of("connection") == "flag" else connection_of(settings)
    given = settings.connections.get(name)
    driver = name if given is None else given.driver
    if driver not in KEEP_NOTHING:
        return open_desk(settings)
    load_handlers([settings.app] if settings.app else [])
    manager = make_manager(settings)
    replace_manager(manager)
    return Sender(manager.connection(name), replace(manager.options_of(name), routes=_queues(settings)))


def _queues(settings: Settings) -> Routes:
    """The routes without their connections: one is chosen."""
    return {pattern: Route(route.queue) for pattern, route in settings.routes.items() if route.queue}


def open_failed(settings: Settings) -> Client | FailedDesk:
    """The failed jobs of the connection that is meant. Close it."""
    name = connection_of(settings)
    if _plain(settings, name):
        return open_client(settings)
    connection = make_manager(settings).connection(name)
    if isinstance(connection, BackgroundConnection):
        return FailedDesk(connection, connection.options, connection.failed_store(), bytes)
    desk = open_desk(settings)
    return desk.failed() if isinstance(desk, BrokerDesk) else desk


@contextmanager
def open_driver(settings: Settings, *, url: str | Endpoint | None = None) -> Iterator[RedisStreams]:
    """The driver that loops and workers use inside the block; `url` goes before the settings'."""
    with closing(Connector(url) if url else open_connector(settings)) as connector:
        yield RedisStreams(connector, settings.options())


def refuse_eviction(driver: RedisStreams) -> None:
    """Raises `UnsafeSetup` when this Redis would throw jobs away to make room, also while it has no memory limit.

    The limit can be set at any time, long after this look. Every policy but noeviction counts: those for keys with a
    TTL drop `once` tokens, so that a resent command does its work twice. A Redis that is away, or that does not tell
    this user, is not held up here: whoever serves waits for it as always.
    """
    try:
        policy = eviction_policy(driver.connector)
    except AWAY:
        return
    if policy not in (None, "noeviction"):
        raise UnsafeSetup(
            f"Redis at {driver.connector.endpoint.where} has maxmemory-policy {policy}: a full server would throw "
            "jobs away.",
            hint="CONFIG SET maxmemory-policy noeviction, and the same in its configuration file; or take the risk "
            "with --allow-eviction.",
        )


def load_handlers(modules: Sequence[str]) -> Registry:
    """Import the modules that register an application's jobs; what they registered, together.

    Raises `ConfigError` for a module that cannot be imported, whatever it raises.
    """
    for module in modules:
        try:
            load_app(module)
        except DelayqError:
            raise
        except Exception as error:
            raise ConfigError(
                f"--app {module}: importing it raised {type(error).__name__}: {error}.",
                hint="Mend that module; -v shows where it happened.",
            ) from error
    return current()


def queues_of(settings: Settings, registry: Registry) -> tuple[str, ...]:
    """What a worker serves that was not told: the default queue, then those its jobs name."""
    return tuple(dict.fromkeys((settings.queue, *registry.queues())))


def fallback_policy(settings: Settings) -> Policy:
    """How jobs are tried that say nothing, and whose handlers say nothing."""
    return Policy(
        tries=settings.tries,
        backoff=settings.backoff,
        retention_ms=settings.retention_ms,
        timeout_ms=settings.timeout_ms,
    )


@contextmanager
def open_served(settings: Settings) -> Iterator[Driver]:
    """The driver of the connection that the settings mean, inside the block."""
    with closing(driver_factory(make_manager(settings), connection_of(settings))()) as driver:
        yield driver


def driver_factory(manager: Manager, name: str | None = None) -> DriverFactory:
    """What makes the drivers of a worker of that connection (None: the default one).

    Raises `ConfigError` for a connection that no worker can serve.
    """
    backend, options, connection = manager.backend(name), manager.options_of(name), manager.connection(name)
    if isinstance(connection, RedisConnection):
        return RedisStreamsFactory(connection.client.connector.endpoint, options)
    assert backend is not None  # else it was refused
    return BrokerDriverFactory(connection.name, backend, options)


def make_plan(
    settings: Settings,
    url: str | Endpoint | None,
    registry: Registry,
    options: WorkerOptions,
    *,
    listeners: Sequence[Listener] = (),
) -> Plan:
    """What a worker of the Redis at `url` is to do; None: of the connection that the settings mean.

    Its handlers dispatch to the same place, unless they say otherwise.
    """
    manager, engine = make_manager(settings, url), settings.options()
    replace_manager(manager)
    drivers = RedisStreamsFactory(url, engine) if url else driver_factory(manager, connection_of(settings))
    return Plan(drivers, registry, options, listeners, keyring=engine.keyring, stand=open_stand(settings))


def make_worker(
    settings: Settings,
    url: str | Endpoint | None,
    registry: Registry,
    options: WorkerOptions,
    *,
    listeners: Sequence[Listener] = (),
    gone: Callable[[], bool] = never,
    began: float | None = None,
) -> Supervisor:
    """A worker of such a plan; its `run` blocks the main thread until it stops. `gone` and `began` as in `Plan`."""
    plan = replace(make_plan(settings, url, registry, options, listeners=listeners), gone=gone)
    return Supervisor(plan if began is None else replace(plan, began=began))


def make_loops(driver: Driver, settings: Settings, vitals: Vitals) -> list[Loop]:
    """Mover, relay and janitor of all queues, for a process of their own; `vitals` counts what they do."""
    relay, roll, tidy_every_s = Relay(driver), Roll(driver), settings.tidy_every_ms / 1000
    mover = Mover(driver, owing=relay.hint, told=vitals.promoted, roll=roll)
    janitor = Janitor(driver, tidy_every_s=tidy_every_s, told=vitals.tidied, roll=roll)
    return [Loop(Beating(role, vitals)) for role in (mover, relay, janitor)]


def move_once(driver: Driver, settings: Settings) -> int:
    """Promote what is due, carry what follows, and look after every queue, once; how many jobs became ready."""
    relay, janitor = Relay(driver), Janitor(driver, tidy_every_s=settings.tidy_every_ms / 1000)
    mover = Mover(driver, owing=relay.hint)
    try:
        janitor.run_once()
        moved = _until_nothing(mover.promote_all)
        relay.run_once()
        return moved + _until_nothing(mover.promote_all)
    finally:
        mover.close()
        janitor.close()


def _until_nothing(step: Callable[[], int]) -> int:
    total = 0
    while moved := step():
        total += moved
    return total
