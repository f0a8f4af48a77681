"""Serves an application in this process until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
from fastapi import FastAPI

from delayq.core.errors import ConfigError, DelayqError
from delayq.http.connections import BoundedConnection, Connections, raise_descriptor_limit
from delayq.http.service import Service
from delayq.loops.log_limit import LogLimit

log = logging.getLogger("delayq.http")

GRACE_S: Final = 10
"""How long requests under way may take once the server is told to stop."""
LARGEST_HEAD: Final = 32 * 1024
BACKLOG: Final = 128
"""How many connections the kernel queues, and how many one turn of the event loop accepts."""
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    app: FastAPI, listening: socket.socket, greet: Callable[[], None], *, trusted_proxies: Sequence[str] = ()
) -> None:
    """Serve on that socket; `greet` is called once requests are answered. Returns after TERM or INT.

    Raises `ConfigError` when Redis or its sentinels refuse these settings; an outage is waited for.
    `trusted_proxies` are addresses or networks whose X-Forwarded-Proto and X-Forwarded-For headers are believed.
    """
    config = uvicorn.Config(
        app,
        http=partial(BoundedConnection, Connections(raise_descriptor_limit())),  # type: ignore[arg-type]
        h11_max_incomplete_event_size=LARGEST_HEAD,
        backlog=BACKLOG,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=GRACE_S,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # `greet` announces start and stop
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(_Repeats())
    server = _Server(config, app.state.service, greet)
    gc.freeze()  # modules and routes stay; the collector need not look at them again and again
    with asyncio.Runner() as runner:
        runner.run(server.serve([listening]))
    if server.refusal is not None:
        raise server.refusal


class _Repeats(logging.Filter):
    """Let one line of a kind through every 10 s: callers without a key can cause these lines at any rate."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit(every_s=10.0)

    def filter(self, record: logging.LogRecord) -> bool:
        times = self._limit.may_log(str(record.msg)[:60])
        if times > 1:
            record.msg = f"{record.msg} ({times} such lines)"
        return times > 0


class _Server(uvicorn.Server):
    """As uvicorn's, but it ends by returning where that one ends by the signal it got."""

    def __init__(self, config: uvicorn.Config, service: Service, greet: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._greet = greet
        self._asking: asyncio.Task[None] | None = None
        self.refusal: ConfigError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._asking = asyncio.create_task(self._ask())
        await super().startup(sockets)
        if self.started:
            self._greet()

    async def _ask(self) -> None:
        """Stop the server when Redis refuses the settings. Waiting helps against an outage, but not against this."""
        client = self._service.client
        try:
            await client.run(client.verbs.server_ms())
        except ConfigError as error:
            self.refusal, self.should_exit = error, True
        except DelayqError as error:
            log.warning("Redis cannot be asked yet; requests are answered with 503 until it can: %s", error)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping.set()
        if self._asking is not None:
            self._asking.cancel()
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
