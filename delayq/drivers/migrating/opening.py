"""From two connections to the ends of a migration between them."""

from __future__ import annotations

from collections.abc import Callable

from delayq.core.errors import InvalidInput
from delayq.core.options import Options
from delayq.drivers.connection import Connection
from delayq.drivers.migrating.ends import SetsAside, Source, Target
from delayq.drivers.migrating.redis_source import RedisSource
from delayq.drivers.migrating.reserving_source import ReservingSource
from delayq.drivers.migrating.targets import BrokerTarget, RedisTarget
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.settings.tables import ConnectionSettings


def source_of(connection: Connection) -> Source:
    """Where jobs are taken from. Raises `InvalidInput` for a connection that keeps none."""
    if isinstance(connection, RedisConnection):
        return RedisSource(connection)
    if not isinstance(connection, BrokerConnection) or not connection.capabilities.serves:
        raise InvalidInput(f"The connection {connection.name!r} keeps no jobs, so there is nothing to move from it.")
    if not connection.capabilities.counts:
        raise InvalidInput(
            f"The connection {connection.name!r} cannot tell how many jobs wait, so a move could not be checked."
        )
    broker = connection.broker
    return broker.source() if isinstance(broker, SetsAside) else ReservingSource(broker)


def target_of(connection: Connection, options: Options) -> Target:
    """Where they go; `options` are the connection's. Raises `InvalidInput` for a connection that keeps none."""
    if isinstance(connection, RedisConnection):
        return RedisTarget(connection, options)
    if not isinstance(connection, BrokerConnection) or not connection.capabilities.durable:
        raise InvalidInput(f"The connection {connection.name!r} keeps no jobs, so none can be moved to it.")
    return BrokerTarget(connection)


def refuse_one_place(
    source: Connection, target: Connection, given: Callable[[str], ConnectionSettings], *, elsewhere: bool
) -> None:
    """Raises `InvalidInput` for two names of one place, where jobs would be moved to themselves without end.

    `given`: what the settings say of a connection. `elsewhere`: they go to a queue of another name there.
    """
    same = place_of(source, given) == place_of(target, given)
    if same and not elsewhere:
        raise InvalidInput(
            f"{source.name!r} and {target.name!r} lead to one place, so the jobs are there already.",
            hint="Name a connection to another place, or another queue: --queue and --to-queue.",
        )


def place_of(connection: Connection, given: Callable[[str], ConnectionSettings]) -> tuple[object, ...]:
    """Where it leads: the same for two names of one place. `given`: what the settings say of a connection."""
    if isinstance(connection, RedisConnection):
        client = connection.client
        return (client.connector.endpoint, client.verbs.options.prefix)
    said = given(connection.name)
    options = tuple(sorted((name, str(value)) for name, value in said.options.items() if name != "failed"))
    return (said.driver, said.place, said.url, said.prefix, options)
