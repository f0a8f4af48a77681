"""What runs of chaos need besides Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url
