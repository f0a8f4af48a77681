"""The metrics port: a small server with nothing to find but /metrics."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final

from delayq.core.errors import ConfigError
from delayq.loops.vitals import Vitals
from delayq.metrics.process_exposition import process_exposition
from delayq.worker.meter import Meter

log = logging.getLogger("delayq.metrics")

PATIENCE_S: Final = 2.0
"""For all of a request, however many pieces it comes in: a client that is slower is left."""
AT_ONCE: Final = 32
"""Clients that are answered beside each other; further ones wait for one of them."""
Page = Callable[[str], tuple[bytes, str]]


class Stand:
    """Listens at once, so that a port that is taken is said before anything runs; answers once it is opened."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"The metrics port {host}:{port} cannot be listened on: {error.strerror}.",
                hint="Take another one with --metrics-port; 0 takes any that is free.",
            ) from error

    @property
    def port(self) -> int:
        """The port, also when any was asked for."""
        number: int = self._socket.getsockname()[1]
        return number

    def open(self, meters: Sequence[Meter], vitals: Vitals) -> None:
        """Answer who asks, in a thread of this process; returns at once."""
        host, port = self._socket.getsockname()[:2]
        log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
        server = _Server(self._socket, lambda accept: process_exposition(meters, vitals, accept))
        threading.Thread(target=server.serve_forever, name="delayq-metrics", daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


class _Server(ThreadingMixIn, HTTPServer):
    """On a socket that is there already. A thread for each client: one that says nothing keeps no scrape waiting."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, page: Page) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._page = page
        self._one = threading.Lock()
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def page(self, accept: str) -> tuple[bytes, str]:
        """What is shown; made once at a time."""
        with self._one:
            return self._page(accept)

    def process_request(self, request: Any, client_address: Any) -> None:
        """When there is a place."""
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the thread; gives the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was too slow, is no reason for a traceback."""
        log.info("metrics: a request ended in the middle", exc_info=log.isEnabledFor(logging.DEBUG))


class _Patient(io.RawIOBase):
    """What a client says, as long as there is time."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._end = time.monotonic() + PATIENCE_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole request within {PATIENCE_S:g} s")
        self._sock.settimeout(left_s)
        return self._sock.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server: _Server

    def setup(self) -> None:
        """The time counts from here."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Patient(self.connection))

    def do_GET(self) -> None:
        """The page, or 404."""
        if self.path.partition("?")[0] != "/metrics":
            self._send(404, b"Only /metrics is here.\n", "text/plain; charset=utf-8")
            return
        self._send(200, *self.server.page(self.headers.get("Accept", "")))

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are no news."""

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.connection.settimeout(PATIENCE_S)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
