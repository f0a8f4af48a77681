"""What speaks to a queue: from settings to a client, or to what stands for one on another backend.

A command that only asks something pays for nothing else: workers, loops and drivers are imported by those who need
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.core.errors import ConfigError
from delayq.drivers.known import KEEP_NOTHING, nothing_kept
from delayq.redis import opening
from delayq.redis.client import Client
from delayq.redis.opening import open_connector
from delayq.settings import Settings
from delayq.settings.tables import DEFAULT

if TYPE_CHECKING:
    from delayq.drivers.serving.desk import BrokerDesk, Sender
    from delayq.drivers.serving.failed_desk import FailedDesk
    from delayq.redis.aio import AsyncClient


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


def address_of(settings: Settings) -> str:
    """Where the connection that is meant leads, without passwords."""
    name = connection_of(settings)
    if _plain(settings, name):
        return opening.address_of(settings)
    from delayq.jobs.current import make_manager

    given = make_manager(settings).given(name)
    where = opening.address_of(settings) if given.driver == "redis" and given.url is None else str(given)
    return f"{where} (connection {name})"


def on_redis(settings: Settings, asking: str = "this") -> Settings:
    """The settings with the Redis of the connection that is meant. Raises `ConfigError` where it is none.

    `asking`: what needs a Redis, for the sentence.
    """
    name = connection_of(settings)
    if _plain(settings, name):
        return settings
    from delayq.jobs.current import make_manager

    given = make_manager(settings).given(name)
    if given.driver in KEEP_NOTHING:
        raise nothing_kept(name, given)
    if given.driver != "redis":
        raise ConfigError(
            f"The connection {name!r} is {given}, and {asking} works on connections with the driver redis alone.",
            hint="docs/connections.md says what each driver can do.",
        )
    changes = {"url": given.url, "prefix": given.prefix, "queue": given.queue}
    return settings.model_copy(update={word: value for word, value in changes.items() if value is not None})


def open_client(settings: Settings, asking: str = "this") -> Client:
    """All verbs, blocking, on the Redis that is meant. Close it, or use it in a `with`. Raises as `on_redis`."""
    settings = on_redis(settings, asking)
    return Client(open_connector(settings), settings.options())


def open_async_client(settings: Settings, asking: str = "this") -> AsyncClient:
    """All verbs, awaited, on the Redis that is meant. Close it with `await client.close()`. Raises as `on_redis`."""
    from delayq.redis.aio import AsyncClient

    settings = on_redis(settings, asking)
    return AsyncClient(open_connector(settings), settings.options())


def open_desk(settings: Settings) -> Client | BrokerDesk:
    """What people ask and do about jobs, on the connection that is meant. Close it, or use it in a `with`.

    Raises `ConfigError` for a connection that keeps no jobs.
    """
    name = connection_of(settings)
    if _plain(settings, name):
        return open_client(settings)
    from delayq.app.desks import desk_of

    return desk_of(settings, name) or open_client(settings)


def open_sender(settings: Settings) -> Client | BrokerDesk | Sender:
    """Where jobs are handed in: any connection, also one that keeps none. Use it in a `with`."""
    name = settings.connection if settings.origin_of("connection") == "flag" else connection_of(settings)
    given = settings.connections.get(name)
    driver = name if given is None else given.driver
    if driver not in KEEP_NOTHING:
        return open_desk(settings)
    from delayq.app.desks import sender_of

    return sender_of(settings, name)


def open_failed(settings: Settings) -> Client | FailedDesk:
    """The failed jobs of the connection that is meant. Close it."""
    name = connection_of(settings)
    if _plain(settings, name):
        return open_client(settings)
    from delayq.app.desks import failed_of

    return failed_of(settings, name) or open_client(settings)
