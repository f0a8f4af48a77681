"""Replies that are too large are not read to their end.

Nobody knows how large a stream's next entries are before they are here, and a reply is whole in memory before its first
entry can be looked at. So a reader counts what comes in for one reply, and closes the connection when it is too much
(`BoundedParser`). What was in it is still this consumer's; it is asked for again, one entry at a time, and of each the
values that are too large are dropped as they come in (`SkippingParser`).
"""

from __future__ import annotations

from typing import Any, Final

from redis._parsers import _HiredisParser, _RESP2Parser
from redis._parsers.socket import SocketBuffer
from redis.exceptions import ConnectionError as LostConnection

_CHUNK: Final = 65_536


class ReplyTooLarge(LostConnection):
    """The reply was left unread, and its connection closed."""


class Skipped(bytes):
    """Stands for a value that was dropped."""

    size: int

    @classmethod
    def of(cls, size: int) -> Skipped:
        """One of so many bytes."""
        skipped = cls()
        skipped.size = size
        return skipped


class _Counted:
    """A socket that gives no more than `left` bytes. All else goes to the socket itself."""

    __slots__ = ("_sock", "left")

    def __init__(self, sock: Any, most: int) -> None:
        self._sock = sock
        self.left = most

    def recv_into(self, buffer: Any) -> int:
        """As the socket's own."""
        count: int = self._sock.recv_into(buffer)
        self.left -= count
        if self.left < 0:
            raise ReplyTooLarge("its answer was too large to be read at once")
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class BoundedParser(_HiredisParser):
    """redis-py's parser on such a socket."""

    def __init__(self, socket_read_size: int, *, most: int) -> None:
        super().__init__(socket_read_size)  # type: ignore[no-untyped-call]  # redis-py
        self._most = most
        self._counted: _Counted | None = None

    def on_connect(self, connection: Any, **options: Any) -> None:
        """A new socket, counted from nothing."""
        super().on_connect(connection, **options)  # type: ignore[no-untyped-call]  # redis-py
        self._sock = self._counted = _Counted(self._sock, self._most)

    def read_response(self, *args: Any, **options: Any) -> Any:
        """One reply. Raises `ReplyTooLarge`."""
        if self._counted is not None:
            self._counted.left = self._most
        return super().read_response(*args, **options)


class _Skipping(SocketBuffer):
    """What was read of a socket; values of more than `most` bytes are dropped as they come in."""

    most = 0

    def read(self, length: int, *args: Any, **options: Any) -> bytes:
        """One value, without the end of line behind it."""
        if length <= self.most:
            return super().read(length, *args, **options)
        left = length + 2
        left -= len(self._buffer.read(left))
        while left:
            if not (part := self._sock.recv(min(left, _CHUNK))):
                raise LostConnection("Connection closed by server")
            left -= len(part)
        return Skipped.of(length)


class SkippingParser(_RESP2Parser):
    """redis-py's parser in Python, on such a buffer. RESP2 only."""

    def __init__(self, socket_read_size: int, *, most: int) -> None:
        super().__init__(socket_read_size)  # type: ignore[no-untyped-call]  # redis-py
        self._most = most

    def on_connect(self, connection: Any, **options: Any) -> None:
        """A new socket."""
        super().on_connect(connection, **options)  # type: ignore[no-untyped-call]  # redis-py
        self._buffer = _Skipping(connection._sock, self.socket_read_size, connection.socket_timeout)
        self._buffer.most = self._most
