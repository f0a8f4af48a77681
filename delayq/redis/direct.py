"""The short way to one server: commands packed, written and read on one connection, with nothing in between.

redis-py's own way for a command borrows a connection, counts and times it, wraps the call in its retries and looks up
a reader for the reply. That is about half of what a round trip over a unix socket takes, and script calls need none
of it: `resend` retries, and every call reads its own reply.

    exchange ──▶ the kept connection, when no other thread is using it
             └─▶ else one from the pool, and back to it afterwards

A cluster has no such way; its client finds the node for each command.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import redis
from hiredis import pack_command
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoAnswer

Words = tuple[Any, ...]
"""A command line of text, bytes and numbers; the first word is the command's name, without spaces."""


class _Kept:
    """A connection kept at hand in one process, and who may use it."""

    __slots__ = ("connection", "lock", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connection: Any = None


class OneServer(redis.Redis):
    """A client for one server, or for the primary behind sentinels. Safe to share between threads and to fork."""

    _kept: _Kept | None = None

    def keep_one(self) -> None:
        """Keep a connection at hand. Not for a pool of one, which would have none left for redis-py's own commands."""
        self._kept = _Kept()

    def exchange(self, commands: Sequence[Words]) -> list[Any]:
        """One round trip; the replies as they came, in order, the server's errors in their places.

        Each command goes out as soon as it is packed: the server works on the first while the next is packed, and on
        the last while the first reply is read.
        """
        kept = self._take_kept()
        connection: Any = kept.connection if kept else self.connection_pool.get_connection()
        try:
            for words in commands:
                connection.send_packed_command((pack_command(words),))
            return [_reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()  # replies may be on their way that nobody will read
            if kept:  # `can_read` of a closed connection connects: a hanging server would cost the next try double
                kept.connection = None
                self.connection_pool.release(connection)
            raise
        finally:
            if kept:
                kept.lock.release()
            else:
                self.connection_pool.release(connection)

    def ask(self, words: Words) -> Any:
        """One command and its reply; raises the server's error."""
        [reply] = self.exchange((words,))
        if isinstance(reply, ResponseError):
            raise reply
        return reply

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
            elif not _usable(kept.connection):
                kept.connection.disconnect()
                kept.connection.connect()
        except BaseException:
            kept.lock.release()
            raise
        return kept


def _usable(connection: Any) -> bool:
    """As the pool looks at a connection before it hands it out: one that can be read was closed by the server."""
    try:
        return not connection.can_read()
    except (LostConnection, NoAnswer, OSError):
        return False


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
