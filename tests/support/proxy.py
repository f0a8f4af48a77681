"""A proxy in front of a real server that loses, cuts and delays replies. Commands always get through.

    with Proxy(server.socket) as proxy:
        client = connect(proxy.url)
        proxy.cut(after=2)        # two more replies, then the connection is closed in place of the third
        proxy.swallow()           # the next reply never comes; the connection stays open
        proxy.delay(0.2)          # every reply comes late

A fault happens once and is gone, unless `times` says otherwise. Handshakes count: to hit a certain command, let the
client connect first, or count with `proxy.replies`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from enum import Enum
from pathlib import Path
from types import TracebackType

from tests.support.resp import split_replies

_CHUNK = 65536


class _Fate(Enum):
    FORWARD = "forward"
    CUT = "cut"
    SWALLOW = "swallow"


class Proxy:
    """Listens on a port of its own, forwards to the unix socket of a server. With `tls`, clients must speak TLS."""

    def __init__(self, target: Path, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._fate, self._after, self._times = _Fate.FORWARD, 0, 0
        self._again: tuple[int, int] | None = None
        self._having = b""
        self._delay_s = 0.0
        self.lost = 0
        """Replies that did not get through so far."""
        self.replies = 0
        """Replies that came from the server so far, whatever became of them."""
        self.connections = 0
        """Connections accepted so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Proxy:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.drop_all()
        for thread in self._threads:
            thread.join(timeout=10)

    def cut(self, *, after: int = 0, times: int = 1, ever: bool = False) -> None:
        """Forward `after` more replies, then close the connection in place of the next one; with `ever` so on."""
        self._plan(_Fate.CUT, after, times, ever)

    def swallow(self, *, after: int = 0, times: int = 1, ever: bool = False, having: bytes = b"") -> None:
        """Forward `after` more replies, then lose the next one and keep the connection; with `ever` so on.

        `having`: only replies with these bytes in them count.
        """
        self._plan(_Fate.SWALLOW, after, times, ever, having)

    def heal(self) -> None:
        """Forward everything from now on."""
        self._plan(_Fate.FORWARD, 0, 0, ever=False)

    def delay(self, seconds: float) -> None:
        """Every reply comes `seconds` late; 0 ends it."""
        self._delay_s = seconds

    def refuse(self) -> None:
        """Stop listening; connections that exist stay."""
        # shutdown wakes the thread that waits in accept; close alone would leave it there.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def drop_all(self) -> None:
        """Close every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _close(one)

    def _plan(self, fate: _Fate, after: int, times: int, ever: bool, having: bytes = b"") -> None:
        with self._lock:
            self._having = having
            self._fate, self._after, self._times = fate, after, times
            self._again = (after, times) if ever else None

    def _next_fate(self, reply: bytes) -> _Fate:
        with self._lock:
            self.replies += 1
            if self._fate is _Fate.FORWARD or self._times == 0 or self._having not in reply:
                return _Fate.FORWARD
            if self._after > 0:
                self._after -= 1
                return _Fate.FORWARD
            self._times -= 1
            self.lost += 1
            if self._times == 0 and self._again:
                self._after, self._times = self._again
            return self._fate

    def _run(self, work: object, *args: socket.socket) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=args, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                accepted, _ = self._listener.accept()
                client = self._secured(accepted)
                if client is None:
                    continue
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(str(self._target))
                with self._lock:
                    self.connections += 1
                    self._sockets += [client, server]
                self._run(self._forward_commands, client, server)
                self._run(self._forward_replies, server, client)

    def _secured(self, client: socket.socket) -> socket.socket | None:
        if self._tls is None:
            return client
        try:
            return self._tls.wrap_socket(client, server_side=True)
        except OSError:  # a client that does not like our certificate
            client.close()
            return None

    def _forward_commands(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(_CHUNK):
                server.sendall(chunk)
        _close(server)

    def _forward_replies(self, server: socket.socket, client: socket.socket) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while chunk := server.recv(_CHUNK):
                buffer += chunk
                for reply in split_replies(buffer):
                    fate = self._next_fate(reply)
                    if fate is _Fate.CUT:
                        _close(server)
                        break
                    if fate is _Fate.FORWARD:
                        time.sleep(self._delay_s)
                        client.sendall(reply)
        _close(client)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
