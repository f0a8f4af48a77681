"""As `cluster`, awaited: each command to the node that has its key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import redis.asyncio
from redis.exceptions import AskError, AuthenticationError, MovedError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ClusterDownError as PartMissing

from delayq.redis import replies as shapes
from delayq.redis.cluster import REDIRECTIONS, Route
from delayq.redis.cluster_pipeline import as_words
from delayq.redis.directory import Directory, told
from delayq.redis.faults import NothingSent, of_a_part
from delayq.redis.map_reading import MAP_S
from delayq.redis.slots import Address, slot_of, slot_of_command

AsyncNode = redis.asyncio.Redis


class AsyncCluster(AsyncNode):
    """`nodes` makes the client of a node, `witness` one that answers soon or not at all. For one event loop."""

    def __init__(
        self, directory: Directory, nodes: Callable[[Address], AsyncNode], witness: Callable[[Address], AsyncNode]
    ) -> None:
        self._directory = directory
        self._make = nodes
        self._witness = witness
        self._nodes: dict[Address, AsyncNode] = {}
        self._turn = asyncio.Lock()
        super().__init__(connection_pool=self._node(directory.seeds[0]).connection_pool)

    @property
    def pools(self) -> list[Any]:
        """The pool of each node."""
        return [node.connection_pool for node in self._nodes.values()]

    async def initialize(self) -> AsyncCluster:
        """Read the map, if it is doubted: one task does, and the others take what it found. Raises `NothingSent`."""
        if self._directory.doubted:
            async with self._turn:
                if self._directory.is_look_due():
                    with self._directory.looking():
                        await self._read_map()
        return self

    async def _read_map(self) -> None:
        """As `map_reading.read_map`."""
        directory = self._directory
        end, trouble = time.monotonic() + MAP_S, "no node answers"
        for address in directory.witnesses():
            node = self._witness(address)
            try:
                [reply] = await _raw(node, "CLUSTER", "SLOTS")
                if directory.learn(reply, address):
                    return
                trouble = f"{address[0]}:{address[1]} has no slots and knows no node that has"
            except (AuthenticationError, ResponseError):
                raise
            except (RedisError, OSError) as error:
                directory.doubt(address)
                trouble = str(error)
            finally:
                await node.aclose()
            if time.monotonic() > end:
                break
        raise NothingSent(f"no node told who has which slot: {trouble}")

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; follows what moved, and never sends again what may have been carried out."""
        await self.initialize()
        address, asking = self._place(slot_of_command(as_words(args))), False
        for _ in range(REDIRECTIONS):
            try:
                return await self._tell(address, args, options, asking=asking)
            except MovedError as error:
                address, asking = self._directory.moved(error, address), False
            except AskError as error:
                address, asking = told(error, address), True
            except (PartMissing, TryAgainError):
                self._directory.doubt()
                raise
            except ResponseError:
                raise
            except (RedisError, OSError) as error:
                self._directory.doubt(address)
                of_a_part(error, address)
                raise
        raise TryAgainError("the nodes of the cluster do not agree on who has this slot")

    def pubsub(self, **options: Any) -> Any:
        """A listener on one node: a message goes to all of them."""
        return self._node(self._directory.anyone()).pubsub(**options)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close every connection to every node. The client may be used again."""
        for node in list(self._nodes.values()):
            await node.aclose(close_connection_pool)

    async def way(self, key: str) -> Route:
        """As `Cluster.way`."""
        await self.initialize()
        return self._place(slot_of(key)), False

    def at(self, address: Address) -> AsyncNode:
        """As `Cluster.at`."""
        return self._node(address)

    def instead_of(self, address: Address, moved: AskError) -> Route:
        """As `Cluster.instead_of`."""
        if isinstance(moved, MovedError):
            return self._directory.moved(moved, address), False
        return told(moved, address), True

    def note(self, address: Address, error: Exception) -> None:
        """As `Cluster.note`."""
        if isinstance(error, PartMissing | TryAgainError):
            self._directory.doubt()
        elif not isinstance(error, ResponseError):
            self._directory.doubt(address)

    async def _tell(self, address: Address, args: Any, options: dict[str, Any], *, asking: bool) -> Any:
        node: Any = self._node(address)
        if not asking:
            return await node.execute_command(*args, **options)
        pipe: Any = node.pipeline(transaction=False)
        pipe.execute_command("ASKING")
        pipe.execute_command(*args, **options)
        _, reply = await pipe.execute(raise_on_error=False)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _place(self, slot: int | None) -> Address:
        owner = self._directory.anyone() if slot is None else self._directory.owner(slot)
        if owner is None:
            raise PartMissing("no node has this slot")
        return owner

    def _node(self, address: Address) -> AsyncNode:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._make(address)
            shapes.install(node)
        return node


async def _raw(node: AsyncNode, *words: str) -> list[Any]:
    """A reply without redis-py's reading of it."""
    pool: Any = node.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_command(*words)
        return [await connection.read_response()]
    finally:
        await pool.release(connection)
