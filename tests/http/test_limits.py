"""What is refused before a route sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from delayq.http.binding import Binding
from delayq.http.limits import BATCH_BODY, MAX_DEPTH, Bounds, Limits, Receive, Scope, Send, depth
from tests.support.web import problem, web

JSON = {"content-type": "application/json"}


async def test_a_foreign_host_is_refused(api: httpx.AsyncClient) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost@evil"):
        problem(await api.get("/v1/queues", headers={"host": host}), 421, "misdirected-request")
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:9", "[::1]:80"):
        assert (await api.get("/v1/queues", headers={"host": host})).status_code == 200


async def test_a_further_name_is_answered_to(redis_url: str) -> None:
    async with web(redis_url, binding=Binding(names=("jobs.example",))) as api:
        assert (await api.get("/livez", headers={"host": "jobs.example"})).status_code == 200
        problem(await api.get("/livez", headers={"host": "example"}), 421, "misdirected-request")


async def test_no_browser_takes_json_for_a_page(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/jobs", json={"name": "<script>", "data": "<img src=x>", "delay": "1h"})
    for answer in (
        made,
        await api.get("/v1/jobs"),
        await api.get("/v1/<b>"),
        await api.get("/livez"),
        await api.get("/"),
    ):
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url


async def test_headers_have_bounds(api: httpx.AsyncClient) -> None:
    problem(await api.get("/livez", headers={"x": "y" * 20_000}), 431, "headers-too-large")
    many = [(f"x-{n}", "") for n in range(200)]
    problem(await api.get("/livez", headers=many), 431, "headers-too-large")
    problem(await api.get("/livez", params={"q": "y" * 9_000}), 414, "query-too-long")


async def test_a_body_has_bounds(api: httpx.AsyncClient) -> None:
    large = b'"' + b"x" * 1_000_000 + b'"'
    problem(await api.post("/v1/queues", content=large, headers=JSON), 413, "body-too-large")

    async def without_a_length() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    problem(await api.post("/v1/queues", content=without_a_length(), headers=JSON), 413, "body-too-large")
    huge = {**JSON, "content-length": str(BATCH_BODY + 1)}
    problem(await api.post("/v1/jobs/batch", content=b"x", headers=huge), 413, "body-too-large")


async def test_a_body_that_does_not_end_is_given_up() -> None:
    """Whoever has no key is told so only when the body is there."""
    asked: list[str] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    transport = httpx.ASGITransport(Limits(application, Bounds(body_s=0.05)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        problem(await client.post("/v1/jobs/batch", content=slow(), headers=JSON), 408, "request-timeout")
        assert not asked
        assert (await client.post("/v1/jobs", content=b"{}", headers=JSON)).status_code == 200
    assert Bounds().body_s == 30


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {**JSON, "content-encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_read(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    problem(await api.post("/v1/queues", content=b"{}", headers=headers), 415, "unsupported-media-type")


@pytest.mark.parametrize("bomb", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 65 + b"]" * 65])
async def test_deep_json_is_refused_unread(api: httpx.AsyncClient, bomb: bytes) -> None:
    problem(await api.post("/v1/jobs/batch", content=bomb, headers=JSON), 400, "too-deep")


def test_depth_counts_brackets_that_are_no_text() -> None:
    assert depth(b"[" * 100 + b"]" * 100) > MAX_DEPTH
    assert depth(b'[{"a":' * 32 + b"1" + b"}]" * 32) <= MAX_DEPTH
    assert depth(b'[{"a":' * 33 + b"1" + b"}]" * 33) > MAX_DEPTH
    assert depth(b"[" * 100_000) > MAX_DEPTH
    assert depth(b"[" + b'"[[[[",' * 100 + b"1]") == 1
    assert depth(b'["\\"' + b"[" * 200 + b'"]') == 1
    assert depth(b"[]," * 100) == 1
    assert depth(b'["' + b"\\\\" * 3 + b'",' + b"[" * 100 + b"]" * 100 + b"]") > MAX_DEPTH  # that string has ended
    assert depth(b'["' + b"\\\\" * 3 + b'\\",' + b"[" * 100 + b'"]') == 1  # and that one has not
    assert MAX_DEPTH == 64
