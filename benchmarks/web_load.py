"""Callers of an HTTP server: so many connections, each with one request at a time, written by hand.

A client library would take more of the processor than the server does.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple


class Load(NamedTuple):
    """How long all requests took, and how long each did, in seconds, sorted."""

    seconds: float
    each: list[float]

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        return self.each[min(len(self.each) - 1, int(len(self.each) * share))] * 1000


def post(url: str, path: str, body: bytes, requests: int, callers: int) -> Load:
    """Post `body` so many times. Raises `AssertionError` for an answer that is not 201."""
    return asyncio.run(_post(url, path, body, requests, callers))


async def _post(url: str, path: str, body: bytes, requests: int, callers: int) -> Load:
    host, _, port = url.removeprefix("http://").rpartition(":")
    lines = (f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    head = "\r\n".join((*lines, "", ""))
    request = head.encode() + body
    took: list[float] = []

    async def call(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(requests // callers):
            began = time.perf_counter()
            writer.write(request)
            answered = await reader.readuntil(b"\r\n\r\n")
            assert answered.startswith(b"HTTP/1.1 201"), answered
            length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - began)
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(call(number) for number in range(callers)))
    return Load(time.perf_counter() - began, sorted(took))
