"""A TCP server on loopback that reads a request and answers with whatever bytes it is told, as slowly as it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Manners = Callable[[socket.socket, threading.Event], None]
"""Given the connection, and an event that is set when the test is over."""


@contextmanager
def rude(manners: Manners, *, reads: bool = True) -> Iterator[int]:
    """Its port. `reads`: it reads the head of the request first."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.settimeout(10.0)
            if reads:
                seen = b""
                while b"\r\n\r\n" not in seen:
                    seen += peer.recv(65536)
            manners(peer, over)

    def accept() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                peer, _ = server.accept()
                threads.append(threading.Thread(target=serve, args=(peer,), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            acceptor.join()
            for thread in threads:
                thread.join()


def says(*pieces: bytes, every_s: float = 0.0, for_ever: bytes = b"") -> Manners:
    """Sends these one after another, and the last piece again and again until the test is over."""

    def speak(peer: socket.socket, over: threading.Event) -> None:
        for piece in pieces:
            peer.sendall(piece)
            over.wait(every_s)
        while for_ever and not over.is_set():
            peer.sendall(for_ever)
            over.wait(every_s)

    return speak
