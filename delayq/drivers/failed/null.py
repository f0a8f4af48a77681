"""Keeps no failed job, as an application may want that has them in its own log: what fails is gone."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery


class NullFailedStore:
    """A `FailedStore` that is always empty. The worker's log still tells of every failure."""

    def add(self, job: FailedJob) -> None:
        """Take it and keep nothing."""

    def get(self, job_id: str) -> FailedJob | None:
        """There is none."""
        return None

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """There are none."""
        return FailedPage((), "")

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """There are none."""
        return 0

    def forget(self, job_ids: Sequence[str]) -> int:
        """There are none to remove."""
        return 0

    def prune(self, before_ms: int) -> int:
        """There are none to remove."""
        return 0

    def close(self) -> None:
        """Nothing is open."""
