"""Fixtures of the dashboard's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq import DelayQ


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as client:
        yield client
