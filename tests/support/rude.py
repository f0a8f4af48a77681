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
    """Its port. `reads`: it reads the request first, whole: to close over what is unread would take back the answer."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.settimeout(10.0)
            if not reads or _read(peer):
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


def _read(peer: socket.socket) -> bool:
    """A request with its body; False when the other side left before its end."""
    seen, end = b"", 1 << 62
    while len(seen) < end:
        part = peer.recv(65536)
        if not part:
            return False
        seen += part
        head, found, _ = seen.lower().partition(b"\r\n\r\n")
        if found:
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            end = len(head) + 4 + int(length or 0)
    return True


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
