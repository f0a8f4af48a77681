"""A receiver of webhooks: answers as it is told, and shows what was posted to it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """`answers` are given one after another, the last one from then on; those `by_id` to the jobs of these ids."""

    port: int
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=lambda: [(204, {})])
    by_id: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """While it is set nothing is answered."""

    def answer(self) -> tuple[int, dict[str, str]]:
        """The next one."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiving(certificate: Path | None = None) -> Iterator[Receiver]:
    """A server on a loopback port of its own; https if it is given a file with key and certificate."""
    receiver = Receiver(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            heads = {name.lower(): value for name, value in self.headers.items()}
            receiver.posts.append(Post(self.path, heads, body))
            while receiver.silent.is_set():
                time.sleep(0.01)  # as long as the test says; not a wait for anything
            status, headers = receiver.by_id.get(heads.get("delayq-id", "")) or receiver.answer()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.silent.clear()
            server.shutdown()
            thread.join()
