"""The blocking leaf, which uses blocking connections of redis-py."""

import os
import select
import time
from collections.abc import Set
from typing import Any, Final

from redis.connection import AbstractConnection

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
from delayq.redis.connection.leaf import TRY_TIMEOUT, ConnectionLost, WokenUp
from delayq.redis.connection.url import Address, set_timeout

_NOTHING: Final[frozenset[int]] = frozenset()


class BlockingLeaf:
    """A pool of connections to one server, which several threads can use.

    A request takes an idle connection, or opens a new one.

    `wake_fd`: a file descriptor that becomes readable when a signal arrives. A signal interrupts a blocking read, which
    then raises WokenUp.
    """

    def __init__(self, address: Address, *, try_timeout: float = TRY_TIMEOUT, wake_fd: int | None = None) -> None:
        self._address = address
        self._try_timeout = try_timeout
        self._wake_fds = [] if wake_fd is None else [wake_fd]
        self._idle: list[AbstractConnection] = []
        self._pid = os.getpid()

    @property
    def where(self) -> str:
        """The address of the server, without secrets."""
        return self._address.masked

    async def send(self, request: bytes, *, within: float | None = None) -> AbstractConnection:
        """Send packed commands; see Leaf."""
        limit = self._try_timeout if within is None else min(within, self._try_timeout)
        connection = self._take(limit)
        sent = False
        try:
            if connection._sock is None:
                _log_in(connection)
                if self._address.is_of_one_server:
                    self._check_mode(connection)
                if limit != self._try_timeout:
                    set_timeout(connection, self._try_timeout)
            sent = True
            connection.send_packed_command([request], check_health=False)
        except ERROR_REPLIES as error:
            connection.disconnect()
            raise login_error(self._address, error) from error
        except CONNECTION_ERRORS as error:
            connection.disconnect()
            raise ConnectionLost(why_lost(error), sent=sent) from error
        except BaseException:
            connection.disconnect()
            raise
        return connection

    async def receive(
        self, connection: AbstractConnection, replies: int, *, block: float = 0.0, within: float | None = None
    ) -> list[Any]:
        """Read replies; see Leaf."""
        try:
            if block:
                self._wait(connection, block + self._try_timeout)
            elif within is not None and not _readable([connection._sock], within):
                raise TimeoutError("no reply came")
            answers = [self._read(connection) for _ in range(replies)]
        except CONNECTION_ERRORS as error:
            connection.disconnect()
            raise ConnectionLost(why_lost(error), sent=True) from error
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        return answers

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    async def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().disconnect()

    def _take(self, timeout: float) -> AbstractConnection:
        """Return an idle connection or a new one. After a fork, the child does not use the parent's connections."""
        if self._pid != os.getpid():
            self._idle = []
            self._pid = os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._address.blocking_connection(timeout)
            if not _readable([connection._sock], 0):  # else the server has closed it
                return connection
            connection.disconnect()

    def _wait(self, connection: AbstractConnection, timeout: float) -> None:
        """Wait until the server replies. Raises WokenUp if a signal comes first, and TimeoutError after `timeout` s."""
        readable = _readable([connection._sock, *self._wake_fds], timeout)
        if not readable:
            raise TimeoutError("no reply came")
        if readable <= set(self._wake_fds):
            os.read(self._wake_fds[0], 4096)
            raise WokenUp

    def _check_mode(self, connection: AbstractConnection) -> None:
        """Raise LoginRefused if the server is a sentinel or a node of a cluster, before any call is sent."""
        connection.send_packed_command([HELLO], check_health=False)
        check_mode(self._read(connection), self.where)

    def _read(self, connection: AbstractConnection) -> Any:
        try:
            return connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ERROR_REPLIES as error:
            return error_reply(error)


def _log_in(connection: AbstractConnection) -> None:
    """Connect and log in. Then send PING, because a server that accepts no more clients says so in its first reply.

    Without PING, this reply would look like the reply to a call, and delayq would have to assume that the call may have
    had an effect.
    """
    connection.connect()
    try:
        connection.send_command("PING", check_health=False)
        connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except ERROR_REPLIES as error:
        if not is_logged_in(error):
            raise


def _readable(watched: list[Any], seconds: float) -> Set[int]:
    """Wait up to `seconds`, and return the descriptors that have something to read."""
    try:
        poll = select.poll()  # unlike `select`, it supports descriptors above 1023
    except AttributeError:  # Windows, and programs that eventlet has patched
        return {one if isinstance(one, int) else one.fileno() for one in select.select(watched, [], [], seconds)[0]}
    for one in watched:
        poll.register(one, select.POLLIN)
    ready = poll.poll(seconds * 1000)
    return {descriptor for descriptor, _ in ready} if ready else _NOTHING
