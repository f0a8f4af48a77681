"""The asyncio implementation of `Leaf`, the interface between executor and network, with connections of redis-py."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator
from typing import Any

from redis.asyncio.connection import AbstractConnection

from delayq.redis.connection.errors import (
    CONNECTION_ERRORS,
    ERROR_REPLIES,
    HELLO,
    check_mode,
    error_reply,
    is_logged_in,
    login_error,
    why_lost,
)
from delayq.redis.connection.leaf import TRY_TIMEOUT, ConnectionLost
from delayq.redis.connection.url import Address


class AsyncioLeaf:
    """A pool of connections for each event loop. A request takes an idle connection of its loop, or opens a new one."""

    def __init__(self, address: Address, *, try_timeout: float = TRY_TIMEOUT) -> None:
        self._address = address
        self._try_timeout = try_timeout
        self._idle: dict[AbstractEventLoop, list[AbstractConnection]] = {}
        self._closers: dict[AbstractEventLoop, AsyncGenerator[None, None]] = {}

    @property
    def where(self) -> str:
        """The address of the server, without secrets."""
        return self._address.masked

    async def send(self, request: bytes, *, within: float | None = None) -> AbstractConnection:
        """Send packed commands; see Leaf."""
        idle = await self._idle_of_loop()
        while idle and _has_ended(idle[-1]):
            await idle.pop().disconnect(nowait=True)
        connection = idle.pop() if idle else self._address.asyncio_connection(self._try_timeout)
        sent = False
        try:
            async with asyncio.timeout(min(within or self._try_timeout, self._try_timeout)):
                if not connection.is_connected:
                    await _log_in(connection)
                    if self._address.is_of_one_server:
                        await self._check_mode(connection)
                sent = True
                await connection.send_packed_command(request, check_health=False)
        except ERROR_REPLIES as error:
            await connection.disconnect(nowait=True)
            raise login_error(self._address, error) from error
        except CONNECTION_ERRORS as error:
            await connection.disconnect(nowait=True)
            if isinstance(error.__cause__, ERROR_REPLIES):  # redis-py wraps errors that occur while it connects
                raise login_error(self._address, error.__cause__) from error
            raise ConnectionLost(why_lost(error), sent=sent) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def receive(
        self, connection: AbstractConnection, replies: int, *, block: float = 0.0, within: float | None = None
    ) -> list[Any]:
        """Read replies; see Leaf.

        The timeout is implemented here, because the `timeout` of redis-py does not fit. When that timeout expires,
        redis-py returns None, which looks like a nil reply, and keeps the connection open although the reply is still
        to come.
        """
        try:
            async with asyncio.timeout(block + min(within or self._try_timeout, self._try_timeout)):
                answers = [await self._read(connection) for _ in range(replies)]
        except CONNECTION_ERRORS as error:
            await connection.disconnect(nowait=True)
            raise ConnectionLost(why_lost(error), sent=True) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        (await self._idle_of_loop()).append(connection)
        return answers

    async def sleep(self, seconds: float) -> None:
        """Sleep without blocking the event loop."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the idle connections of the running loop."""
        idle = await self._idle_of_loop()
        while idle:
            await idle.pop().disconnect()

    async def _idle_of_loop(self) -> list[AbstractConnection]:
        """Return the idle connections of the running loop. The first call in a loop forgets closed loops."""
        loop = asyncio.get_running_loop()
        if loop not in self._idle:
            for closed in [other for other in self._idle if other.is_closed()]:
                del self._idle[closed], self._closers[closed]
            self._idle[loop] = []
            self._closers[loop] = self._close_with_loop(self._idle[loop])
            await anext(self._closers[loop])
        return self._idle[loop]

    async def _close_with_loop(self, idle: list[AbstractConnection]) -> AsyncGenerator[None, None]:
        """Close the connections when their loop ends.

        `asyncio.run` closes the open async generators of its loop before it closes the loop.
        """
        try:
            yield
        finally:
            for connection in idle:
                await connection.disconnect()

    async def _check_mode(self, connection: AbstractConnection) -> None:
        """Raise LoginRefused if the server is a sentinel or a node of a cluster; see the blocking leaf."""
        await connection.send_packed_command(HELLO, check_health=False)
        check_mode(await self._read(connection), self.where)

    async def _read(self, connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ERROR_REPLIES as error:
            return error_reply(error)


async def _log_in(connection: AbstractConnection) -> None:
    """Connect, log in and send PING; see `_log_in` of the blocking leaf for the reason."""
    await connection.connect()
    try:
        await connection.send_command("PING", check_health=False)
        await connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except ERROR_REPLIES as error:
        if not is_logged_in(error):
            raise


def _has_ended(connection: AbstractConnection) -> bool:
    """Return True if the loop has noticed that the server closed this idle connection."""
    return connection._reader is None or connection._reader.at_eof()
