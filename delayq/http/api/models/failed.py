"""Failed jobs as lists have them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from delayq.http.api.models.jobs import JobRow


class FailedRow(JobRow, frozen=True, kw_only=True):
    """A failed job and its last error; null when it has left the list meanwhile."""

    error: dict[str, Any] | None


class FailedPage(Struct, frozen=True, kw_only=True):
    """Some failed jobs. A page may be short, even empty: only `next_cursor` null is the end."""

    jobs: list[FailedRow]
    next_cursor: str | None
