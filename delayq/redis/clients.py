"""Makes the sync clients: one server, Sentinel, Cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias, assert_never, cast

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, BlockingConnectionPool, SSLConnection
from redis.retry import Retry

from delayq.core.endpoint import Endpoint, Topology
from delayq.redis import replies
from delayq.redis.cluster import Cluster
from delayq.redis.direct import Direct, OneServer
from delayq.redis.directory import Directory
from delayq.redis.many_waits import MOST
from delayq.redis.sentinels import Sentinels, ToPrimary, ToPrimaryByTls
from delayq.redis.slots import Address
from delayq.redis.sockets import connection_class
from delayq.redis.wire import Wire, common_options, pool_options, sentinel_options, tls_options

Client: TypeAlias = Direct
"""For one server, for the primary behind sentinels, or for a cluster, which has the same methods."""


def make_client(endpoint: Endpoint, wire: Wire, directory: Directory, silent_s: float | None = None) -> Client:
    """A new client. Opens no connection yet.

    `directory` is what is known of the endpoint, if it is a cluster, and `silent_s` as `Cluster` says.
    """
    client: Client
    match endpoint.topology:
        case Topology.STANDALONE:
            client = _standalone(endpoint, wire)
        case Topology.SENTINEL:
            client = _sentinel(endpoint, wire)
        case Topology.CLUSTER:
            client = _cluster(endpoint, wire, directory, silent_s)
        case _:
            assert_never(endpoint.topology)
    replies.install(client)
    return client


def close_client(client: Client) -> None:
    """Close every connection of `client`, those to its sentinels too."""
    client.close()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        sentinel.close()


def _no_retries() -> Retry:
    return Retry(NoBackoff(), 0)


def _standalone(endpoint: Endpoint, wire: Wire) -> OneServer:
    kind = SSLConnection if endpoint.tls else connection_class(unix=bool(endpoint.path))
    pool = BlockingConnectionPool(  # type: ignore[no-untyped-call]  # redis-py
        connection_class=kind,
        retry=_no_retries(),
        **pool_options(endpoint, wire, connection=AbstractConnection),
    )
    client = cast(OneServer, OneServer.from_pool(pool))  # redis-py says Redis for any class
    if wire.connections > 1:
        client.keep_one()
    return client


def _sentinel(endpoint: Endpoint, wire: Wire) -> Client:
    sentinel_kwargs = {**sentinel_options(endpoint), "retry": _no_retries()}
    manager: Any = Sentinels(list(endpoint.hosts), sentinel_kwargs=sentinel_kwargs)  # type: ignore[no-untyped-call]
    client: Client = manager.master_for(
        endpoint.service,
        redis_class=OneServer,
        connection_class=ToPrimaryByTls if endpoint.tls else ToPrimary,
        max_connections=wire.refusing_pool,
        db=endpoint.db,
        retry=_no_retries(),
        **tls_options(endpoint),
        **common_options(endpoint, wire, connection=AbstractConnection),
    )
    return client


def _cluster(endpoint: Endpoint, wire: Wire, directory: Directory, silent_s: float | None) -> Client:
    # A reader has a connection for each slot it waits for, and one to end those waits with.
    connections = wire.connections if wire.connections > 1 else MOST + 1

    def node(address: Address, wire: Wire) -> OneServer:
        return _standalone(replace(endpoint, topology=Topology.STANDALONE, hosts=(address,)), wire)

    made = replace(wire, connections=connections, connect_s=min(wire.connect_s, silent_s or wire.connect_s))
    soon = replace(wire, connect_s=wire.connect_s / 2, answer_s=wire.connect_s / 2, connections=1)
    return Cluster(
        directory,
        lambda address: node(address, made),
        lambda address: node(address, soon),
        silent_s,
    )
