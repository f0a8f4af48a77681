"""A house for each test: the shared server, a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.supervision import House


@pytest.fixture
def house(redis_url: str, tmp_path: Path) -> Iterator[House]:
    made = House(redis_url, tmp_path)
    yield made
    made.close()
