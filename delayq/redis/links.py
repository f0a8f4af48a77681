"""One connection held for a whole talk, so that all of it meets one server; sync and asyncio.

For one server, and for the primary behind sentinels, it comes out of the client's pool. In a cluster it is one to the
node that serves the key; a node that serves it no longer says so, and the talk begins again with the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis.exceptions import AskError, MovedError, ResponseError

from delayq.redis.confirm import Confirm, Confirmed, talk
from delayq.redis.direct import Words

if TYPE_CHECKING:
    from delayq.redis.aclients import AsyncClient
    from delayq.redis.clients import Client

MOVES = 5
"""How often a slot may turn out to be elsewhere; then the caller's own resends go on."""
_ASKING: Words = ("ASKING",)


def confirm(client: Client, step: Confirm, *, where: str, wait_ms: int) -> Confirmed:
    """Hold that talk. Raises what a call met."""
    node: Any = None
    for last in range(MOVES, -1, -1):
        try:
            with _held(client, step, node) as connection:
                return _spoken(connection, step, where, wait_ms, asking=node is not None)
        except AskError as moved:  # a MOVED is one of them too; nothing was carried out
            if not last or not hasattr(client, "nodes_manager"):
                raise
            node = _next_node(client, moved)
    raise AssertionError("unreachable: the last turn returns or raises")


def _spoken(connection: Any, step: Confirm, where: str, wait_ms: int, *, asking: bool) -> Confirmed:
    going, words = talk(step, where, wait_ms), None
    try:
        words = next(going)
        while True:
            try:
                replies = _exchange(connection, words, asking=asking)
            except BaseException as error:  # noqa: BLE001  # thrown into the talk, which raises what it does not know
                connection.disconnect()  # replies may be on their way that nobody will read
                words = going.throw(error)
            else:
                words = going.send(replies)
    except StopIteration as done:
        said: Confirmed = done.value
        return said
    finally:
        going.close()


def _exchange(connection: Any, commands: Sequence[Words], *, asking: bool) -> list[Any]:
    replies = []
    for words in commands:
        if asking:
            connection.send_packed_command((pack_command(_ASKING),))
        connection.send_packed_command((pack_command(words),))
    for _ in commands:
        if asking:
            _reply(connection)
        replies.append(_reply(connection))
    return replies


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


@contextmanager
def _held(client: Any, step: Confirm, node: Any) -> Iterator[Any]:
    if hasattr(client, "nodes_manager"):
        node = node or client.get_node_from_key(step.calls[0].keys[0])
        client = client.get_redis_connection(node)
    connection = client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        client.connection_pool.release(connection)


def _next_node(client: Any, moved: AskError) -> Any:
    """Where to go instead: whom an ASK names, for this once; None: whom a fresh map names."""
    if not isinstance(moved, MovedError):
        return client.get_node(host=moved.host, port=moved.port)
    client.nodes_manager.initialize()
    return None


async def aconfirm(client: AsyncClient, step: Confirm, *, where: str, wait_ms: int) -> Confirmed:
    """As `confirm`. Cancelling it closes the connection."""
    node: Any = None
    for last in range(MOVES, -1, -1):
        try:
            async with _aheld(client, step, node) as connection:
                return await _aspoken(connection, step, where, wait_ms, asking=node is not None)
        except AskError as moved:
            if not last or not hasattr(client, "nodes_manager"):
                raise
            node = await _anext_node(client, moved)
    raise AssertionError("unreachable: the last turn returns or raises")


async def _aspoken(connection: Any, step: Confirm, where: str, wait_ms: int, *, asking: bool) -> Confirmed:
    going, words = talk(step, where, wait_ms), None
    try:
        words = next(going)
        while True:
            try:
                replies = await _aexchange(connection, words, asking=asking)
            except BaseException as error:  # noqa: BLE001  # thrown into the talk, which raises what it does not know
                await connection.disconnect(nowait=True)
                words = going.throw(error)
            else:
                words = going.send(replies)
    except StopIteration as done:
        said: Confirmed = done.value
        return said
    finally:
        going.close()


async def _aexchange(connection: Any, commands: Sequence[Words], *, asking: bool) -> list[Any]:
    replies = []
    for words in commands:
        if asking:
            await connection.send_packed_command(pack_command(_ASKING), check_health=False)
        await connection.send_packed_command(pack_command(words), check_health=False)
    for _ in commands:
        if asking:
            await _areply(connection)
        replies.append(await _areply(connection))
    return replies


async def _areply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


@asynccontextmanager
async def _aheld(client: Any, step: Confirm, node: Any) -> AsyncIterator[Any]:
    if hasattr(client, "nodes_manager"):
        if not client.nodes_manager.slots_cache:
            await client.initialize()
        node = node or client.get_node_from_key(step.calls[0].keys[0])
        connection = node.acquire_connection()
        try:
            await connection.connect()
            yield connection
        finally:
            # redis-py before 8 has no method for it, and gives it back in just this way
            (getattr(node, "release", None) or node._free.append)(connection)
        return
    connection = await client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        await client.connection_pool.release(connection)


async def _anext_node(client: Any, moved: AskError) -> Any:
    if not isinstance(moved, MovedError):
        return client.get_node(host=moved.host, port=moved.port)
    await client.nodes_manager.initialize()
    return None
