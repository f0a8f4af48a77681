"""Points in time: RFC 3339 text or a datetime in, epoch milliseconds out, and back again.

    2026-11-21T15:00:00Z    2026-11-21T16:00:00.250+01:00    2026-11-21 16:00+01:00      names one instant
    2026-11-21T16:00:00     only together with a time zone, and only if the clocks there show it once

              offset before      offset after
    gap       +01:00        <    +02:00          the clocks go forward: 02:30 is never shown, refused
    fold      +02:00        >    +01:00          they go back: 02:30 is shown twice, refused unless `fold` says which

`datetime.utcoffset` answers with the offset before the change for fold=0 and with the one after it for fold=1,
whatever the size of the change: half an hour on Lord Howe, a whole day at the date line.

An instant in the past is returned as it is, and the scripts take it for now. Only they know what now is: a
client whose clock is an hour fast would otherwise put off a job that is due by that hour.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from delayq.core.durations import MAX_DURATION_MS, duration_ms, format_duration, rounded_up
from delayq.core.errors import InvalidTime
from delayq.core.shown import shown

__all__ = ["MAX_DURATION_MS", "duration_ms", "format_duration", "format_instant", "instant_ms"]

_LONGEST_TEXT: Final = 64
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
_LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  (naive: offsets are taken off by hand, which cannot overflow)
_ONE_MS: Final = timedelta(milliseconds=1)

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)
_ZONE: Final = re.compile(r"(?!right/|posix/)[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")

_HINT: Final = "Write it like 2026-11-21T15:00:00Z or 2026-11-21T16:00:00+01:00."


def instant_ms(value: str | datetime, *, now_ms: int, tz: str | None = None, fold: int | None = None) -> int:
    """The epoch milliseconds of `value`, never negative; raises InvalidTime.

    `now_ms` serves one purpose: the instant may lie at most ten years after it. `tz` is an IANA name, needed
    by a time without an offset and refused for one that has its own. `fold` says which of two is meant where
    the clocks are put back: 0 the first, 1 the second; elsewhere it changes nothing. An aware datetime
    answers that with its own `fold` unless told otherwise.
    """
    if fold not in (None, 0, 1):
        raise InvalidTime(f"{shown(fold)} is no fold.", hint="Use 0 for the first or 1 for the second of two.")
    if isinstance(value, str):
        wall, rest_ms, own = _parse(value)
    elif isinstance(value, datetime):
        own = value.tzinfo if value.utcoffset() is not None else None
        wall, rest_ms = value.replace(tzinfo=None, fold=0), 0
        fold = value.fold if own is not None and fold is None else fold
    else:
        raise InvalidTime(f"{shown(value)} is no point in time: it is neither text nor a datetime.", hint=_HINT)
    offset = _offset(wall, _pick_zone(wall, own, tz), fold)
    ms = -(-(wall - _EPOCH - offset) // _ONE_MS) + rest_ms  # rounded up: never before the instant
    if ms > now_ms + MAX_DURATION_MS:
        raise InvalidTime(f"{wall} is more than 10 years ahead.", hint="Choose an earlier time.")
    return max(ms, 0)


def format_instant(ms: float) -> str:
    """`ms` as RFC 3339 in UTC: '2026-11-21T15:00:00.000Z'.

    Nothing is refused, since a damaged or foreign score must not break a list: what lies outside the years 1
    to 9999, and what is no number at all, comes back as words that say so.
    """
    if not _FIRST_MS <= ms <= _LAST_MS:  # also true of NaN
        return f"no date ({shown(ms)} ms)"
    return f"{(_EPOCH + timedelta(milliseconds=math.floor(ms))).isoformat(timespec='milliseconds')}Z"


def _parse(text: str) -> tuple[datetime, int, tzinfo | None]:
    """Wall clock to the second, milliseconds to add to it, and the offset if one is written."""
    match = _RFC3339.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise InvalidTime(f"{shown(text)} is no point in time.", hint=_HINT)
    *numbers, fraction, utc, sign, hours, minutes = match.groups()
    if hours and (int(hours) > 23 or int(minutes) > 59):
        raise InvalidTime(f"{shown(text)} has an impossible offset.", hint=_HINT)
    try:
        year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
        wall = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001  (its offset comes later)
    except ValueError as error:
        raise InvalidTime(f"{shown(text)} does not exist: {error}.", hint=_HINT) from None
    # .9991 is a full second, and the wall clock has no room for it: the caller adds it to the result.
    rest_ms = rounded_up(int(fraction) * 1000, 10 ** len(fraction)) if fraction else 0
    if utc:
        return wall, rest_ms, UTC
    if sign:
        ahead = timedelta(hours=int(hours), minutes=int(minutes))
        return wall, rest_ms, timezone(ahead if sign == "+" else -ahead)
    return wall, rest_ms, None


def _pick_zone(wall: datetime, own: tzinfo | None, tz: str | None) -> tzinfo:
    zone = None if tz is None else _zone(tz)
    if own is not None and zone is not None:
        raise InvalidTime(
            f"{wall} has its own offset, and the time zone {tz} besides.", hint="Leave out one of the two."
        )
    picked = own or zone
    if picked is None:
        raise InvalidTime(
            f"{wall} has no offset, so it names no instant.",
            hint="Add Z or an offset such as +01:00, or say the time zone, such as Europe/Berlin.",
        )
    return picked


def _zone(name: object) -> ZoneInfo:
    try:
        if isinstance(name, str) and len(name) <= _LONGEST_TEXT and _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown, no zone file, a directory
        cause: Exception | None = error
    else:
        cause = None
    raise InvalidTime(
        f"{shown(name)} is no time zone known here.", hint="Use an IANA name such as Europe/Berlin."
    ) from cause


def _offset(wall: datetime, zone: tzinfo, fold: int | None) -> timedelta:
    """What the clocks of `zone` are ahead of UTC by when they show `wall`."""
    before = wall.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    if before < after:
        raise InvalidTime(
            f"{wall} does not exist in {zone}: the clocks are put forward over it.",
            hint="Choose a time before or after the change.",
        )
    if before > after and fold is None:
        raise InvalidTime(
            f"{wall} happens twice in {zone}: the clocks are put back over it.",
            hint="Say which is meant with fold (--fold 0|1): 0 is the first, 1 the second.",
        )
    return after if fold else before
