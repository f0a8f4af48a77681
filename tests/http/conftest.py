"""Fixtures of the HTTP tests: the application in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.web import web


@pytest.fixture
async def api(redis_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API, without keys."""
    async with web(redis_url) as client:
        yield client
