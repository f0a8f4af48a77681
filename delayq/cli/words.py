"""How values look to people. Pure."""

from __future__ import annotations

from typing import Final

from delayq.core import durations
from delayq.core.when import format_instant

span: Final = durations.span


def moment(ms: int | None, now_ms: int) -> str:
    """A time and how far it is: '2026-11-21T15:00:00.000Z, in 14m 59s'; '' for None."""
    return "" if ms is None else f"{format_instant(ms)}, {distance(ms, now_ms)}"


def distance(ms: int, now_ms: int) -> str:
    """'in 14m 59s', 'now', '3m ago'."""
    if ms == now_ms:
        return "now"
    return f"in {span(ms - now_ms)}" if ms > now_ms else f"{span(now_ms - ms)} ago"


def count(number: int, noun: str) -> str:
    """'1 job', '2 jobs'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
