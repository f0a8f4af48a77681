"""Timers of the event loop for the requests of one connection: each costs one, and a slow body is still refused."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from delayq.http.connections import BoundedConnection, Connections
from delayq.http.limits import Bounds, Limits, Message, Receive, Scope, Send

REQUESTS = 50
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body: bytes = (await receive())["body"]
    start: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(body_s: float) -> AsyncIterator[Streams]:
    """Return a block with one connection to a server that lets a body take so long."""
    config = uvicorn.Config(Limits(echo, Bounds(body_s=body_s)), lifespan="off", log_config=None, access_log=False)
    config.load()
    every, state = Connections(10), ServerState()

    def connection() -> BoundedConnection:
        return BoundedConnection(every, config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def answer_of(streams: Streams, *pieces: bytes) -> bytes:
    reader, writer = streams
    for piece in pieces:
        writer.write(piece)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


def test_a_request_that_arrives_whole_starts_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn's own, for keep-alive; the deadlines of head and body start none for each request."""
    started: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        call_at: Callable[..., asyncio.TimerHandle] = loop.call_at

        def counted(when: float, *given: Any, **named: Any) -> asyncio.TimerHandle:
            started.append(when)
            return call_at(when, *given, **named)

        async with connected(30.0) as streams:
            monkeypatch.setattr(loop, "call_at", counted)
            for _ in range(REQUESTS):
                assert (await answer_of(streams, HEAD + b"{}")).endswith(b"{}")

    asyncio.run(main())
    assert len(started) <= REQUESTS + 1


def test_a_body_that_does_not_end_is_refused_in_time() -> None:
    async def main() -> None:
        async with connected(0.2) as streams:
            assert (await answer_of(streams, HEAD + b"{}")).endswith(b"{}")
            assert (await answer_of(streams, HEAD + b"{")).startswith(b"HTTP/1.1 408 ")

    asyncio.run(main())


def test_an_idle_connection_is_closed_after_earlier_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts from the last answer, also while the timer still stands at an earlier one."""
    monkeypatch.setattr("delayq.http.connections.HEAD_S", 0.5)

    async def main() -> None:
        loop: AbstractEventLoop = asyncio.get_running_loop()
        async with connected(30.0) as streams:
            reader, writer = streams
            for _ in range(5):
                assert (await answer_of(streams, HEAD + b"{}")).endswith(b"{}")
            began = loop.time()
            writer.write(HEAD[:20])  # which ends uvicorn's wait for the next request, but not ours for its head
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            assert loop.time() - began >= 0.4

    asyncio.run(main())
