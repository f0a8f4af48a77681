"""How values look to people. Pure."""

from __future__ import annotations

import re
from typing import Final

from delayq.core.when import format_duration, format_instant

_PART: Final = re.compile(r"[0-9.]+[a-z]+")
_MINUTE_MS: Final = 60_000


def printable(text: str) -> str:
    """`text` on one line and harmless to a terminal: what is not printable is escaped, as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def span(ms: int) -> str:
    """A duration in its two largest units: '14m 59s', '2d 3h', '250ms'. Milliseconds count below a minute only."""
    exact = ms if ms < _MINUTE_MS else ms // 1000 * 1000
    return " ".join(_PART.findall(format_duration(exact))[:2])


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
