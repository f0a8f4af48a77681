"""How values look on a page. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from delayq.core import durations
from delayq.core.durations import format_duration
from delayq.core.when import format_instant

span: Final = durations.span
_PART: Final = re.compile(r"[0-9.]+[a-z]+")
_SECOND_MS: Final = 1_000
_FIRST_S: Final = -62_135_596_800  # what a calendar has: the years 1 to 9999
_LAST_S: Final = 253_402_300_799
_COUNTED: Final = {
    "taken_total": "admitted",
    "blocked_total": "rejected",
    "opened_total": "opened",
    "acked_total": "Completed",
    "released_total": "Retried",
}
_SCALE: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))


class Moment(NamedTuple):
    """A time as a page shows it: for machines, for readers without JavaScript, and how far away it is."""

    ms: int
    iso: str
    utc: str
    distance: str


def moment(ms: int, now_ms: int) -> Moment:
    """A time, seen from now. The script of the page turns `utc` into the reader's own zone."""
    return Moment(ms, format_instant(ms), f"{_utc(ms):%d %b %H:%M:%S} UTC", distance(ms, now_ms))


def minute(ms: int) -> str:
    """'14:05', in UTC."""
    return f"{_utc(ms):%H:%M}"


def day(ms: int) -> str:
    """'22 Nov', in UTC."""
    return f"{_utc(ms):%d %b}"


def distance(ms: int, now_ms: int) -> str:
    """'in 14m 59s', 'now', '3m ago'."""
    if abs(ms - now_ms) < _SECOND_MS:
        return "now"
    return f"in {span(ms - now_ms)}" if ms > now_ms else f"{span(now_ms - ms)} ago"


def exact(ms: int) -> str:
    """A duration to the millisecond: '14m 59.995s', '3ms'; with a minus sign for one that went back."""
    return ("-" if ms < 0 else "") + " ".join(_PART.findall(format_duration(abs(ms))))


def compact(number: float) -> str:
    """A count in at most four digits: '9,999', '12.3k', '1.00M'."""
    for size, letter in _SCALE:
        if number >= size:
            unit = 1_000 if letter == "k" else size
            value = number / unit
            return f"{value:.0f}{letter}" if value >= 100 else f"{value:.1f}{letter}"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def milliseconds(ms: float | None) -> str:
    """'0.8 ms', '35ms', '4s'; '' for None."""
    if ms is None:
        return ""
    return f"{ms:.1f} ms" if ms < 10 else span(round(ms))


def percent(share: float | None) -> str:
    """'0%', '0.04%', '12.5%', '100%'; '' for None."""
    return "" if share is None else f"{share * 100:.3g}%"


def plural(number: int, noun: str) -> str:
    """'1 job', '2 jobs', '1,000 jobs'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counted(counter: str) -> str:
    """What a counter counts: 'admitted' for `taken_total`."""
    return _COUNTED.get(counter) or counter.removesuffix("_total").replace("_", " ").capitalize()


def size(number: int) -> str:
    """'812 bytes', '3.4 KiB', '12.0 MiB'."""
    if number < 1024:
        return plural(number, "byte")
    return f"{number / 1024:.1f} KiB" if number < 1024 * 1024 else f"{number / 1024 / 1024:.1f} MiB"


def _utc(ms: int) -> datetime:
    """The time; of what no calendar has, the first or last that it has."""
    return datetime.fromtimestamp(max(_FIRST_S, min(_LAST_S, ms // 1_000)), UTC)
