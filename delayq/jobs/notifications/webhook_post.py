"""One HTTP POST to an address that was looked at, with a bound on everything: time, answer, redirects (none).

The time is for all of it together. A receiver that sends a byte every few seconds would keep a connection whose single
steps have a timeout for as long as it likes.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delayq.jobs.notifications.webhook_address import Address, Target

MOST_ANSWER: Final = 64 * 1024
"""Bytes of an answer, its head included, that are read at most."""
TOLD: Final = 200
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, the head `Retry-After` or '', and how the answer begins; nothing of it when all is well."""

    status: int
    retry_after: str
    told: str


def post(
    target: Target,
    addresses: Sequence[Address],
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    context: ssl.SSLContext | None,
) -> Reply:
    """Send it to the first of the addresses that takes the connection. `context` is for https.

    Raises `OSError` and `http.client.HTTPException` when there was no answer, `TimeoutError` when not in time;
    `ValueError` for a header that cannot be sent.
    """
    connection = _Pinned(target, addresses, _deadline(timeout_s), context)
    try:
        connection.request("POST", target.path, body, headers)
        answer = connection.getresponse()
        told = "" if 200 <= answer.status < 300 else _beginning(answer)
        return Reply(answer.status, answer.headers.get("retry-after", ""), told)
    finally:
        connection.close()


def _beginning(answer: http.client.HTTPResponse) -> str:
    """The status counts, whatever becomes of the words behind it."""
    try:
        return answer.read(TOLD).decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError):
        return ""


def _deadline(timeout_s: float) -> Callable[[], float]:
    """What is left of the time; raises `TimeoutError` when nothing is."""
    end = time.monotonic() + timeout_s

    def left_s() -> float:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        return left

    return left_s


class _Pinned(http.client.HTTPConnection):
    """A connection to an address that was looked at; the certificate must still be the host's."""

    def __init__(
        self,
        target: Target,
        addresses: Sequence[Address],
        left_s: Callable[[], float],
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(target.host, target.port)
        self.default_port = 443 if target.secure else 80  # leaves the port out of the head `Host`, where it is usual
        self._addresses = addresses
        self._context = context
        self._left_s = left_s

    def connect(self) -> None:
        """Connect, and greet if it is https."""
        sock = self._reach()
        try:
            if self._context is not None:
                sock.settimeout(self._left_s())
                sock = self._context.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock: Any = _Timed(sock, self._left_s)

    def _reach(self) -> socket.socket:
        """No name is looked up here: a second look might find another address."""
        *others, last = self._addresses
        for address in others:
            try:
                return self._to(address)
            except OSError:
                self._left_s()  # goes on to the next one while there is time
        return self._to(last)

    def _to(self, address: Address) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._left_s())
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect((str(address), self.port))
        except BaseException:
            sock.close()
            raise
        return sock


class _Timed:
    """As much of a socket as http.client uses, with what is left of the time as the timeout of every step."""

    def __init__(self, sock: socket.socket, left_s: Callable[[], float]) -> None:
        self._sock = sock
        self._left_s = left_s

    def sendall(self, data: bytes) -> None:
        """Piece by piece: a reader that takes a byte now and then must not get a new timeout with each."""
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(self._left_s())
            rest = rest[self._sock.send(rest[:_PIECE]) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """What the answer is read from."""
        return io.BufferedReader(_Answer(self._sock, self._left_s))

    def close(self) -> None:
        """At once; nothing of the answer is waited for."""
        self._sock.close()


class _Answer(io.RawIOBase):
    """The bytes of an answer, as long as there is time and they are not too many."""

    def __init__(self, sock: socket.socket, left_s: Callable[[], float]) -> None:
        super().__init__()
        self._sock = sock
        self._left_s = left_s
        self._left = MOST_ANSWER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._sock.settimeout(self._left_s())
        if self._left <= 0:
            raise http.client.HTTPException(f"the answer has over {MOST_ANSWER:,} bytes")
        count = self._sock.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count
