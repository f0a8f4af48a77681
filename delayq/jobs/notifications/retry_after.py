"""The head `Retry-After`: how long a receiver wants to be left alone, in seconds or as a date."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after_s(value: str, now_s: float) -> float | None:
    """Seconds from now; None for one that says nothing: absent, no number and no date, or a date that is past.

    `now_s` is the epoch. A date without a zone is UTC, as HTTP has no other.
    """
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:12])
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        left_s = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return left_s if left_s > 0 else None
