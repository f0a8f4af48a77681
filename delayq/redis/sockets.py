"""Connections whose waits the kernel ends, not Python.

A socket with a timeout of Python's is asked `poll` before every read and every write: two more system calls a round
trip, and the second wakes the caller twice. With SO_RCVTIMEO and SO_SNDTIMEO the read itself ends in time. That is
a seventh of a round trip on a unix socket (`python -m benchmarks --only schedule_one`).

A wait that ends so is an EAGAIN, which redis-py calls a ConnectionError; `translate` says "no answer in time".
Only where the kernel's `struct timeval` is two longs, and not under TLS, which reads and writes as it pleases.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

from redis.connection import Connection, UnixDomainSocketConnection

SUPPORTED = sys.platform == "linux"


def timed_by_kernel(sock: socket.socket) -> socket.socket:
    """`sock`, its timeout handed over to the kernel."""
    if seconds := sock.gettimeout():
        sock.settimeout(None)
        _time(sock, seconds)
    return sock


def _time(sock: socket.socket, seconds: float) -> None:
    whole = int(seconds)
    timeval = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)


class UnixSocket(UnixDomainSocketConnection):
    """To a server on this machine, by path."""

    def _connect(self) -> socket.socket:
        return timed_by_kernel(super()._connect())  # type: ignore[no-untyped-call]  # redis-py


class TcpSocket(Connection):
    """To a server by host and port, without TLS.

    What is said before the first command may take as long as connecting may, not as long as a reply: a server that
    hangs is connected to all the same, by its system.
    """

    def _connect(self) -> socket.socket:
        return timed_by_kernel(super()._connect())  # type: ignore[no-untyped-call]  # redis-py

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """As redis-py calls it, once it is connected."""
        sock: Any = self._sock
        if self.socket_connect_timeout:
            _time(sock, self.socket_connect_timeout)
        super().on_connect_check_health(check_health=check_health)
        if self.socket_timeout:
            _time(sock, self.socket_timeout)


def connection_class(*, unix: bool) -> type[Any]:
    """What a pool makes its connections of."""
    if not SUPPORTED:
        return UnixDomainSocketConnection if unix else Connection
    return UnixSocket if unix else TcpSocket
