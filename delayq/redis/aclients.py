"""Makes the asyncio clients: one server, Sentinel, Cluster. As `clients`, awaited.

An asyncio client belongs to the event loop and the process that first used it: after a fork, or in a new
loop, make a new one. `Connector` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias, assert_never

import redis.asyncio
from redis.asyncio.connection import AbstractConnection, BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection
from redis.backoff import NoBackoff

from delayq.core.endpoint import Endpoint, Topology
from delayq.redis import packing, replies
from delayq.redis.acluster import AsyncCluster
from delayq.redis.directory import Directory
from delayq.redis.faults import REDIS_ERRORS, fault_of, of_primary
from delayq.redis.sentinels import ASK, Search, put_first
from delayq.redis.slots import Address
from delayq.redis.wire import Wire, common_options, pool_options, sentinel_options, tls_options

AsyncClient: TypeAlias = redis.asyncio.Redis
"""For one server, for the primary behind sentinels, or for a cluster, which has the same methods."""


class Sentinels(Sentinel):
    """As `sentinels.Sentinels`, awaited."""

    async def discover_master(self, service_name: str) -> Address:
        """The address of the primary. Raises `NoPrimary`."""
        search = Search()
        for sentinel in tuple(self.sentinels):
            try:
                state = await sentinel.execute_command(ASK, service_name)  # type: ignore[no-untyped-call]
            except REDIS_ERRORS as error:
                search.failed(sentinel, error)
                continue
            if address := search.named(state):
                put_first(self.sentinels, sentinel)
                return address
        raise search.nothing()


class _Named:
    """As `sentinels._Named`, awaited."""

    host: str
    port: int
    doubted = False

    async def connect(self) -> None:
        if self.doubted:
            self.doubted = False
            await self.disconnect()  # type: ignore[attr-defined]
        await super().connect()  # type: ignore[misc]

    async def connect_to(self, address: Address) -> None:
        try:
            await super().connect_to(address)  # type: ignore[misc]  # of the class beside it
        except REDIS_ERRORS as error:
            of_primary(error, address)
            raise

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except REDIS_ERRORS as error:
            of_primary(error, (self.host, self.port))
            self.doubted = self.doubted or fault_of(error).code == "NOREPLICAS"
            raise


class ToPrimary(_Named, SentinelManagedConnection):
    """To the primary that the sentinels name."""


class ToPrimaryByTls(_Named, SentinelManagedSSLConnection):
    """As `ToPrimary`, by TLS."""


def make_async_client(endpoint: Endpoint, wire: Wire, directory: Directory) -> AsyncClient:
    """A new client. Opens no connection yet. `directory` is what is known of the endpoint, if it is a cluster."""
    match endpoint.topology:
        case Topology.STANDALONE:
            client = _standalone(endpoint, wire)
        case Topology.SENTINEL:
            client = _sentinel(endpoint, wire)
        case Topology.CLUSTER:
            client = _cluster(endpoint, wire, directory)
        case _:
            assert_never(endpoint.topology)
    replies.install(client)
    return client


async def close_async_client(client: AsyncClient) -> None:
    """Close every connection of `client`, those to its sentinels too."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


async def drop_async_idle(client: AsyncClient) -> None:
    """Close what `client` does not use right now; the next command asks again who the primary is."""
    pools: list[Any] = client.pools if isinstance(client, AsyncCluster) else [client.connection_pool]
    for pool in pools:
        await pool.disconnect(inuse_connections=False)


def _no_retries() -> Retry:
    return Retry(NoBackoff(), 0)


def _standalone(endpoint: Endpoint, wire: Wire) -> AsyncClient:
    kind: type[Any] = packing.Tls if endpoint.tls else packing.Plain
    pool = BlockingConnectionPool(
        connection_class=packing.Unix if endpoint.path else kind,
        retry=_no_retries(),
        **pool_options(endpoint, wire, connection=AbstractConnection),
    )
    return redis.asyncio.Redis.from_pool(pool)


def _sentinel(endpoint: Endpoint, wire: Wire) -> AsyncClient:
    sentinel_kwargs = {**sentinel_options(endpoint), "retry": _no_retries()}
    manager: Any = Sentinels(list(endpoint.hosts), sentinel_kwargs=sentinel_kwargs)  # type: ignore[no-untyped-call]
    client: AsyncClient = manager.master_for(
        endpoint.service,
        connection_class=ToPrimaryByTls if endpoint.tls else ToPrimary,
        max_connections=wire.refusing_pool,
        db=endpoint.db,
        retry=_no_retries(),
        **tls_options(endpoint),
        **common_options(endpoint, wire, connection=AbstractConnection),
    )
    return client


def _cluster(endpoint: Endpoint, wire: Wire, directory: Directory) -> AsyncClient:
    def node(address: Address, wire: Wire) -> AsyncClient:
        return _standalone(replace(endpoint, topology=Topology.STANDALONE, hosts=(address,)), wire)

    soon = replace(wire, connect_s=wire.connect_s / 2, answer_s=wire.connect_s / 2, connections=1)
    return AsyncCluster(directory, lambda address: node(address, wire), lambda address: node(address, soon))
