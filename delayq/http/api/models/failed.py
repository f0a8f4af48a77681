"""Failed jobs as lists have them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from delayq.http.api.models.jobs import JobRow
from delayq.http.api.models.words import Signature


class FailedRow(JobRow, frozen=True, kw_only=True):
    """A failed job and its last error; null when it has left the list meanwhile."""

    error: dict[str, Any] | None


class FailedSample(Struct, frozen=True, kw_only=True):
    """The job of a group that failed last, and its message."""

    id: str
    queue: str
    message: str


class FailedGroup(Struct, frozen=True, kw_only=True):
    """Failed jobs with one name, one exception type and one message, in which `#` stands for numbers, ids, quotes."""

    signature: Signature
    name: str | None
    type: str
    message: str
    count: int
    first_ms: int
    first: str
    last_ms: int
    last: str
    queues: list[str]
    sample: FailedSample


class FailedGroups(Struct, frozen=True, kw_only=True):
    """The largest group first. `looked`: failed jobs that were looked at, the newest first; `exact`: these were all.

    `others`: jobs in further groups, which are not listed.
    """

    groups: list[FailedGroup]
    looked: int
    exact: bool
    others: int


class FailedPage(Struct, frozen=True, kw_only=True):
    """Some failed jobs. A page may be short, even empty: only `next_cursor` null is the end."""

    jobs: list[FailedRow]
    next_cursor: str | None
