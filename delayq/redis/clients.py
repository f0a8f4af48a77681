"""Makes the sync clients: one server, Sentinel, Cluster."""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import AbstractConnection, BlockingConnectionPool, SSLConnection
from redis.retry import Retry
from redis.sentinel import Sentinel

from delayq.core.endpoint import Endpoint, Topology
from delayq.redis import replies
from delayq.redis.direct import OneServer
from delayq.redis.sockets import connection_class
from delayq.redis.wire import Wire, common_options, pool_options, sentinel_options, tls_options

Client: TypeAlias = redis.Redis
"""For one server, for the primary behind sentinels, or for a cluster, which has the same methods."""


def make_client(endpoint: Endpoint, wire: Wire) -> Client:
    """A new client. Opens no connection yet, except for a cluster, whose map it reads."""
    match endpoint.topology:
        case Topology.STANDALONE:
            client = _standalone(endpoint, wire)
        case Topology.SENTINEL:
            client = _sentinel(endpoint, wire)
        case Topology.CLUSTER:
            client = _cluster(endpoint, wire)
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


def _standalone(endpoint: Endpoint, wire: Wire) -> Client:
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
    manager: Any = Sentinel(list(endpoint.hosts), sentinel_kwargs=sentinel_kwargs)  # type: ignore[no-untyped-call]
    client: Client = manager.master_for(
        endpoint.service,
        redis_class=OneServer,
        max_connections=wire.refusing_pool,
        db=endpoint.db,
        retry=_no_retries(),
        **tls_options(endpoint),
        **common_options(endpoint, wire, connection=AbstractConnection),
    )
    return client


def _cluster(endpoint: Endpoint, wire: Wire) -> Client:
    nodes = [ClusterNode(host, port) for host, port in endpoint.hosts]  # type: ignore[no-untyped-call]
    cluster = redis.RedisCluster(
        startup_nodes=nodes,
        max_connections=wire.refusing_pool,
        retry=_no_retries(),
        **tls_options(endpoint),
        **common_options(endpoint, wire, connection=AbstractConnection),
    )
    return cast(Client, cluster)
