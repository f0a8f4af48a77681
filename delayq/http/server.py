"""Serves an application in this process until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from fastapi import FastAPI

from delayq.http.service import Service

GRACE_S: Final = 10
"""How long requests under way may take once the server is told to stop."""
LARGEST_HEAD: Final = 32 * 1024
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


def run(app: FastAPI, listening: socket.socket, greet: Callable[[], None]) -> None:
    """Serve on that socket; `greet` is called once requests are answered. Returns after TERM or INT."""
    config = uvicorn.Config(
        app,
        http="h11",  # it bounds what it reads of a head before it is complete
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its comings and goings are told by `greet`
    server = _Server(config, app.state.service, greet)
    with asyncio.Runner() as runner:
        runner.run(server.serve([listening]))


class _Server(uvicorn.Server):
    """As uvicorn's, but it ends by returning where that one ends by the signal it got."""

    def __init__(self, config: uvicorn.Config, service: Service, greet: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._greet = greet

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._greet()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in _STOPS:
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number in _STOPS:  # the process ends now; a second signal must not change its exit code
                signal.signal(number, signal.SIG_IGN)
