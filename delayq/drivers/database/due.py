"""Times of a row: Laravel's whole seconds, and beside them what is missing to the millisecond.

    due = available_at * 1000 + delayq_shift_ms

A job that waits rounds up, so that a worker that knows only seconds never starts it early; one that is due at once
rounds down, so that such a worker sees it at once.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Table, cast

from delayq.core.errors import InvalidInput
from delayq.core.when import format_instant

LATEST_S: Final = 2**31 - 1
"""What PostgreSQL's column holds, and so what every one may hold: 2038-01-19."""


def columns_of(due_ms: int, now_ms: int) -> dict[str, int]:
    """The two columns of a due time. Raises `InvalidInput` for one that Laravel's columns cannot hold."""
    seconds = due_ms // 1000 if due_ms <= now_ms else -(-due_ms // 1000)
    if seconds > LATEST_S:
        raise InvalidInput(
            f"The job is due {format_instant(due_ms)}; the jobs table holds times up to "
            f"{format_instant(LATEST_S * 1000)}.",
            hint="Give an earlier time, or send it over a connection to Redis.",
        )
    return {"available_at": seconds, "delayq_shift_ms": due_ms - seconds * 1000}


def due_of(row: Any) -> int:
    """The due time of a row, epoch ms."""
    return int(row.available_at) * 1000 + int(row.delayq_shift_ms)


def is_due(jobs: Table, now: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """Conditions that hold for rows whose time has come; the first one is for the index."""
    rows = jobs.c
    return rows.available_at <= now // 1000 + 1, due_column(jobs) <= now


def due_column(jobs: Table) -> ColumnElement[int]:
    """The due time in SQL. The factor is typed so that PostgreSQL does not count in four bytes."""
    return cast(jobs.c.available_at, BigInteger) * 1000 + jobs.c.delayq_shift_ms
