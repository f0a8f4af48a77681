"""The HTTP application in this process, asked with httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from delayq.http.app import make_app
from delayq.http.binding import Binding
from delayq.settings import Settings

BASE = "http://localhost"


@asynccontextmanager
async def web(redis_url: str, *, binding: Binding | None = None, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application on that Redis; both are closed at the end."""
    app = make_app(Settings(url=redis_url, **settings), binding)
    async with talking(app) as client:
        yield client


@asynccontextmanager
async def talking(app: FastAPI, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `app`, whose lifespan surrounds the block."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        client.headers.update(headers)
        yield client


def problem(answer: httpx.Response, status: int, kind: str) -> Any:
    """The problem document that an answer must be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["type"], body["status"]) == (f"urn:delayq:{kind}", status)
    assert body["title"]
    assert body["detail"]
    assert body["instance"].startswith("/")
    return body
