"""The short way to one server: commands packed, written and read on one connection, with nothing in between.

redis-py's own way for a command borrows a connection, counts and times it, wraps the call in its retries and looks up
a reader for the reply. That is about half of what a round trip over a unix socket takes, and script calls need none
of it: `resend` retries, and every call reads its own reply.

    exchange ──▶ the kept connection, when no other thread is using it
             └─▶ else one from the pool, and back to it afterwards

A cluster goes the same way to each of its nodes; see `cluster`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import redis
from hiredis import pack_command
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as TimeoutLost

FEW: Final = 16
"""Commands that are each written by themselves."""
PIECE: Final = 8 * 1024
"""Bytes of more commands than that which are written at once, at least."""
Words = tuple[Any, ...]
"""A command line of text, bytes and numbers; the first word is the command's name, without spaces."""


class GroupRead(NamedTuple):
    """A blocking read of one new entry: by whom, of which streams, for how long at most.

    `behind` are commands that the server runs once the read has ended; a cluster runs none.
    """

    group: str
    consumer: str
    streams: Sequence[str]
    block_ms: int
    behind: Sequence[Words] = ()

    def words(self, streams: Sequence[str]) -> Words:
        """The command for some of the streams."""
        head = ("XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", 1, "BLOCK", self.block_ms, "STREAMS")
        return (*head, *streams, *(">" for _ in streams))


class Heard(NamedTuple):
    """What one read of some streams brought: a reply, or the error in its place; and what was asked for behind it."""

    streams: Sequence[str]
    reply: Any
    behind: Sequence[Any] = ()


class _Kept:
    """A connection kept at hand in one process, and who may use it."""

    __slots__ = ("_poll", "_socket", "connection", "lock", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connection: Any = None
        self._socket: Any = None

    def usable(self) -> bool:
        """Whether nothing can be read. All replies were, so what there is would be the end, or one that nobody wants.

        redis-py asks that too, and makes a new poll each time, which is longer than the question.
        """
        sock = self.connection._sock
        if sock is None:
            return False
        if sock is not self._socket:
            self._socket, self._poll = sock, select.poll()
            self._poll.register(sock, select.POLLIN)
        return not self._poll.poll(0)


class Trip:
    """A borrowed connection: commands are written to it, then their replies are read, then it goes back."""

    __slots__ = ("_client", "_count", "_kept", "connection")

    def __init__(self, client: OneServer, connection: Any, kept: _Kept | None) -> None:
        self._client = client
        self._kept = kept
        self._count = 0
        self.connection = connection

    def say(self, commands: Sequence[Words]) -> None:
        """Write commands.

        Each of a few goes out as soon as it is packed: the server works on the first while the next is packed, and on
        the last while the first reply is read.
        """
        try:
            if len(commands) > FEW:
                _write_many(self.connection, commands)
            else:
                for words in commands:
                    self.connection.send_packed_command((pack_command(words),))
        except BaseException:
            self.abandon()
            raise
        self._count += len(commands)

    def hear(self, by: float | None = None) -> list[Any]:
        """The replies to what was written, in order, the server's errors in their places. The connection is kept.

        Raises `TimeoutError` unless the first has begun `by` then, as `time.monotonic` counts; None: no such limit.
        """
        try:
            if by is not None and self._count:
                self._await(by)
            replies = [_reply(self.connection) for _ in range(self._count)]
        except BaseException:
            self.abandon()
            raise
        self._count = 0
        return replies

    def replies(self, by: float | None = None) -> list[Any]:
        """As `hear`, and the connection goes back."""
        replies = self.hear(by)
        self._give_back()
        return replies

    def _await(self, by: float) -> None:
        poll = select.poll()
        poll.register(self.connection._sock, select.POLLIN)
        if not poll.poll(max(0.0, by - time.monotonic()) * 1000):
            raise TimeoutLost("no answer in time")

    def abandon(self) -> None:
        """Close the connection: replies may be on their way that nobody will read."""
        try:
            self.connection.disconnect()
            if self._kept:  # `can_read` of a closed connection connects: a hanging server would cost a try double
                self._kept.connection = None
                self._client.connection_pool.release(self.connection)
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._kept:
            self._kept.lock.release()
        else:
            self._client.connection_pool.release(self.connection)


class Direct(redis.Redis):
    """A client that has the short way: for one server, or for a cluster of them."""

    @abstractmethod
    def exchange(self, commands: Sequence[Words]) -> list[Any]:
        """One round trip to each server concerned; replies in order, the server's errors in their places.

        Raises when no server concerned could be asked; when some could not, that error stands in the place of the
        replies it cost.
        """

    @abstractmethod
    def read_any(self, read: GroupRead) -> list[Heard]:
        """Wait until one of several streams has something, at most for the block; what came of each read."""

    @abstractmethod
    def servers(self) -> Mapping[str, OneServer]:
        """The servers that are written to: host and port (or a path), and a client for each."""

    @abstractmethod
    def key_on(self, node: str, name: str) -> str:
        """`name`, or a name that begins with it, as a key that this one of `servers` has."""

    def ask(self, words: Words) -> Any:
        """One command and its reply; raises the server's error."""
        [reply] = self.exchange((words,))
        if isinstance(reply, Exception):
            raise reply
        return reply


class OneServer(Direct):
    """A client for one server, or for the primary behind sentinels. Safe to share between threads and to fork."""

    _kept: _Kept | None = None

    def keep_one(self) -> None:
        """Keep a connection at hand. Not for a pool of one, which would have none left for redis-py's own commands."""
        self._kept = _Kept()

    def exchange(self, commands: Sequence[Words]) -> list[Any]:
        """One round trip; the replies as they came, in order, the server's errors in their places.

        `post` and `replies` in one piece: nearly every command of delayq goes this way.
        """
        kept = self._take_kept()
        connection: Any = kept.connection if kept else self.connection_pool.get_connection()
        try:
            if len(commands) > FEW:
                _write_many(connection, commands)
            else:
                for words in commands:
                    connection.send_packed_command((pack_command(words),))
            return [_reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            if kept:  # as in `Trip.abandon`
                kept.connection = None
                self.connection_pool.release(connection)
            raise
        finally:
            if kept:
                kept.lock.release()
            else:
                self.connection_pool.release(connection)

    def post(self, commands: Sequence[Words]) -> Trip:
        """Write commands; their replies have to be read, or the trip abandoned."""
        trip = self.borrow()
        trip.say(commands)
        return trip

    def borrow(self) -> Trip:
        """A connection for a while: the kept one, or one from the pool."""
        kept = self._take_kept()
        return Trip(self, kept.connection if kept else self.connection_pool.get_connection(), kept)

    def read_any(self, read: GroupRead) -> list[Heard]:
        """One command: a server that is alone reads several streams at once."""
        reply, *behind = self.exchange((read.words(read.streams), *read.behind))
        if isinstance(reply, Exception):
            raise reply
        return [Heard(read.streams, reply, behind)]

    def servers(self) -> Mapping[str, OneServer]:
        """This one; behind sentinels, the primary, whatever its address is now."""
        return {"": self}

    def key_on(self, node: str, name: str) -> str:
        """The name itself."""
        return name

    def close(self) -> None:
        """Close every connection. The client may be used again."""
        kept = self._kept
        if kept and kept.pid == os.getpid() and kept.lock.acquire(blocking=False):
            connection, kept.connection = kept.connection, None
            if connection is not None:
                self.connection_pool.release(connection)
            kept.lock.release()
        super().close()

    def _take_kept(self) -> _Kept | None:
        """The kept connection, ready to be written to; None when there is none or another thread has it."""
        kept = self._kept
        if kept is None:
            return None
        if kept.pid != os.getpid():  # a forked child has sockets of its own, and the lock may have been held
            kept = self._kept = _Kept()
        if not kept.lock.acquire(blocking=False):
            return None
        try:
            if kept.connection is None:
                kept.connection = self.connection_pool.get_connection()
            elif not kept.usable():
                kept.connection.disconnect()
                kept.connection.connect()
        except BaseException:
            kept.lock.release()
            raise
        return kept


def _write_many(connection: Any, commands: Sequence[Words]) -> None:
    """Write commands in pieces of some KiB, because a write costs more than a small command."""
    packed: list[bytes] = []
    size = 0
    for words in commands:
        packed.append(pack_command(words))
        size += len(packed[-1])
        if size >= PIECE:
            connection.send_packed_command((b"".join(packed),))
            packed, size = [], 0
    if packed:
        connection.send_packed_command((b"".join(packed),))


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
