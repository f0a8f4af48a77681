"""What is told of a batch, from its four numbers."""

from __future__ import annotations

import pytest

from delayq.core.batches import BatchInfo


def info(pending: int, done: int, failed: int = 0, skipped: int = 0, finished_ms: int | None = None) -> BatchInfo:
    return BatchInfo("b", "", pending, done, failed, skipped, 0, None, finished_ms, allow_failures=True)


@pytest.mark.parametrize(
    ("numbers", "progress"),
    [((0, 0), 100), ((1, 0), 0), ((1, 999), 99), ((2, 1), 33), ((1, 1, 1), 66), ((0, 1, 1, 1), 100)],
)
def test_progress_is_rounded_down(numbers: tuple[int, ...], progress: int) -> None:
    """So 100 says that all have ended."""
    assert info(*numbers).progress == progress
