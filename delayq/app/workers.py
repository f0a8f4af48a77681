"""What serves queues: from settings to drivers, loops and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from delayq.app.clients import connection_of, on_redis
from delayq.core.endpoint import Endpoint
from delayq.core.errors import AWAY, UnsafeSetup
from delayq.core.events import Listener
from delayq.core.outcome import Policy
from delayq.drivers.base import Driver
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.drivers.serving.driver import BrokerDriverFactory
from delayq.jobs.current import make_manager, replace_manager
from delayq.jobs.registry import Registry
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.loops.served import Roll
from delayq.loops.vitals import Beating, Vitals
from delayq.manager import Manager
from delayq.metrics.opening import open_stand
from delayq.redis.checkup import eviction_policy
from delayq.redis.connect import Connector
from delayq.redis.opening import open_connector
from delayq.settings import Settings
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import DriverFactory, Plan, never
from delayq.worker.supervisor import Supervisor


def make_driver(settings: Settings) -> RedisStreams:
    """The loops' and workers' side of the Redis that is meant. Close it. Raises as `on_redis`."""
    settings = on_redis(settings)
    return RedisStreams(open_connector(settings), settings.options())


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
    lease_ms = None if settings.origin_of("lease") == "default" else settings.lease_ms
    stand = open_stand(settings)
    return Plan(drivers, registry, options, listeners, keyring=engine.keyring, stand=stand, lease_ms=lease_ms)


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
