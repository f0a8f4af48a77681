"""Two stand-ins for a server: a proxy that loses replies, and a server that answers what it was told to."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import hiredis

LOGIN = (b"+PONG\r\n", b"*0\r\n")
"""The replies to the PING and the HELLO of a login."""


class Proxy:
    """Passes everything on between clients and a server, and counts the replies, except for those of each login.

    `lose(n)`: instead of passing on the n-th reply from now on, it closes the connection of that client; 0 = none.
    `lose_all()`: it does so with every reply from now on. `on_loss` is called before it closes a connection.
    """

    def __init__(self, listener: socket.socket, server_path: str) -> None:
        self._listener = listener
        self._server_path = server_path
        self._left = 0
        self._loses_all = False
        self.on_loss: Callable[[], object] = lambda: None
        self.url = f"unix://{listener.getsockname()}"
        self.replies = 0

    def lose(self, n: int) -> None:
        self._left = n

    def lose_all(self) -> None:
        self._loses_all = True

    def serve(self) -> None:
        """Accept clients until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server_path)
            threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass_replies, args=(client, server), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            server.sendall(data)
        _shut(server)

    def _pass_replies(self, client: socket.socket, server: socket.socket) -> None:
        reader = hiredis.Reader(notEnoughData=None)
        with closing(client), closing(server):
            while data := _received(server):
                reader.feed(data)
                arrived = self._count(reader)
                if arrived and (self._loses_all or 0 < self._left <= arrived):
                    self._left = 0
                    self.on_loss()
                    break
                self._left = max(self._left - arrived, 0)
                client.sendall(data)
            _shut(client)
            _shut(server)

    def _count(self, reader: hiredis.Reader) -> int:
        arrived = 0
        while reader.has_data() and (reply := reader.gets()) is not None:
            arrived += reply != b"PONG" and not (isinstance(reply, list) and reply[:1] == [b"server"])
        self.replies += arrived
        return arrived


@contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of the server at a unix socket."""
    with _listening() as listener:
        proxy = Proxy(listener, url.removeprefix("unix://"))
        thread = threading.Thread(target=proxy.serve, daemon=True)
        thread.start()
        yield proxy
        _shut(listener)
        thread.join()


@contextmanager
def server_that_answers(*answers: bytes) -> Iterator[str]:
    """Run a server that answers each request, whatever it is, with the next of these; then it answers no more."""

    def serve(listener: socket.socket) -> None:
        left = list(answers)
        while left:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with closing(client):
                while left and _received(client):
                    client.sendall(left.pop(0))

    with _listening() as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"unix://{listener.getsockname()}"
        _shut(listener)
        thread.join()


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory(prefix="delayq-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(folder) / "proxy.sock"))
        listener.listen()
        yield listener


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
