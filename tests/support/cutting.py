"""A relay in front of a server that loses one answer: the command gets through, then the connection ends.

with Cutter(server.port) as cutter:
    cutter.after(b"delete")        # the next chunk of a client that begins so is forwarded; its answer is not
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType

CHUNK = 65536


class Cutter:
    """Listens on `port`; clients speak by turns, one command and one answer at a time."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._word = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []

    def __enter__(self) -> Cutter:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()

    def after(self, word: bytes) -> None:
        """Lose the answer to the next command that begins so."""
        self._word = word

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                self._begin(partial(self._relay, client, server))

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while command := client.recv(CHUNK):
                server.sendall(command)
                answer = server.recv(CHUNK)  # until it is there, the server may not have done it
                if self._word and command.startswith(self._word):
                    self._word = b""
                    break
                client.sendall(answer)
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()
