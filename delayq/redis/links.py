"""One connection held for a whole talk, so that all of it meets one server; sync and asyncio.

For one server, and for the primary behind sentinels, it comes out of the client's pool. In a cluster it is one to the
node that has the key; one that has it no longer says so, and the talk begins again at the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from hiredis import pack_command
from redis.exceptions import AskError, RedisError, ResponseError, TryAgainError

from delayq.redis.acluster import AsyncCluster
from delayq.redis.cluster import REDIRECTIONS, Cluster
from delayq.redis.confirm import Confirm, Confirmed, Wait, talk
from delayq.redis.direct import Words

if TYPE_CHECKING:
    from delayq.redis.aclients import AsyncClient
    from delayq.redis.clients import Client

_ASKING: Final[Words] = ("ASKING",)
_DISAGREE: Final = "the nodes of the cluster do not agree on who has this slot"


def confirm(client: Client, step: Confirm, *, where: str, wait: Wait) -> Confirmed:
    """Hold that talk. Raises what a call met."""
    if not isinstance(client, Cluster):
        with _held(client) as connection:
            return _spoken(connection, step, where, wait, asking=False)
    way = client.way(step.mark)
    for _ in range(REDIRECTIONS):
        address, asking = way
        try:
            with _held(client.at(address)) as connection:
                return _spoken(connection, step, where, wait, asking=asking)
        except AskError as moved:  # a MOVED is one of them too; nothing was carried out
            way = client.instead_of(address, moved)
        except (RedisError, OSError) as error:
            client.note(address, error)
            raise
    raise TryAgainError(_DISAGREE)


def _spoken(connection: Any, step: Confirm, where: str, wait: Wait, *, asking: bool) -> Confirmed:
    going, words = talk(step, where, wait), None
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
def _held(client: Any) -> Iterator[Any]:
    connection = client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        client.connection_pool.release(connection)


async def aconfirm(client: AsyncClient, step: Confirm, *, where: str, wait: Wait) -> Confirmed:
    """As `confirm`. Cancelling it closes the connection."""
    if not isinstance(client, AsyncCluster):
        async with _aheld(client) as connection:
            return await _aspoken(connection, step, where, wait, asking=False)
    way = await client.way(step.mark)
    for _ in range(REDIRECTIONS):
        address, asking = way
        try:
            async with _aheld(client.at(address)) as connection:
                return await _aspoken(connection, step, where, wait, asking=asking)
        except AskError as moved:
            way = client.instead_of(address, moved)
        except (RedisError, OSError) as error:
            client.note(address, error)
            raise
    raise TryAgainError(_DISAGREE)


async def _aspoken(connection: Any, step: Confirm, where: str, wait: Wait, *, asking: bool) -> Confirmed:
    going, words = talk(step, where, wait), None
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
async def _aheld(client: Any) -> AsyncIterator[Any]:
    connection = await client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        await client.connection_pool.release(connection)
