"""Conversion between milliseconds and the durations and points in time that people write.

    duration   500ms  90s  15m  1h30m  1.5h  2d  1w  PT15M   units from large to small, each once; at most ten years
    instant    2026-11-21T15:00:00Z  2026-11-21T16:00:00.25+01:00  2026-11-21 16:00 with a time zone

* A number without a unit is refused, because the unit would be a guess.
* Months and years are refused, because their length varies. A day has 24 hours.
* Parts of a millisecond are rounded up, so that no job runs early.
"""

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, available_timezones

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in the standard library from Python 3.13 on

Duration = str | timedelta
Instant = str | datetime

MAX_DURATION_MS: Final = 3653 * 86_400_000
"""Ten years in milliseconds, with three leap days, which is the longest case."""

_MS_PER_UNIT: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_RANK: Final = {unit: rank for rank, unit in enumerate(_MS_PER_UNIT)}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_PART: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|[wdhms])")
_COMPACT: Final = re.compile(rf"(?:{_NUMBER}(?:ms|[wdhms]))+")
_YEAR: Final = re.compile(r"[0-9]{4}-")
_ISO: Final = re.compile(
    rf"P(?=[0-9T])((?:{_NUMBER}W)?(?:{_NUMBER}D)?)(?:T(?=[0-9])((?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?))?"
)
_DURATION_HINT: Final = "Write 500ms, 90s, 15m, 1h30m, 2d or PT15M."

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?:([Zz])|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?"
)
_EPOCH: Final = datetime(1970, 1, 1)
_ONE_MS: Final = timedelta(milliseconds=1)
_INSTANT_HINT: Final = "Write 2026-11-21T15:00:00Z or 2026-11-21T16:00:00+01:00."


def is_instant(value: Duration | Instant) -> "TypeIs[Instant]":
    """Return True for a datetime, and for a text that begins with a year. Other values count as durations."""
    return isinstance(value, datetime) or (isinstance(value, str) and _YEAR.match(value) is not None)


def duration_ms(value: Duration, *, field: str = "delay") -> int:
    """Return a duration in whole milliseconds, from 0 to ten years. The message of InvalidInput names `field`."""
    ms = _duration(value, field)
    if ms > MAX_DURATION_MS:
        raise InvalidInput(
            f"{field} {shown(str(value))} is longer than 10 years.", hint="Use at most 3653d.", field=field
        )
    return ms


def format_duration(ms: int) -> str:
    """Return milliseconds as a text for people: '15m', '1h30m', '2d', '1.5s', '500ms', '0s'."""
    text = ""
    for unit in ("d", "h", "m"):
        count, ms = divmod(ms, _MS_PER_UNIT[unit])
        text += f"{count}{unit}" if count else ""
    if not ms:
        return text or "0s"
    return text + (f"{ms}ms" if ms < 1000 else f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s")


def rough_duration(ms: int) -> str:
    """Return milliseconds as a text for people, without the small units of long times: '2d5h', '1h30m', '14m38s'."""
    for unit, least in (("d", "h"), ("h", "m"), ("s", "s")):
        if ms >= _MS_PER_UNIT[unit]:
            return format_duration(ms - ms % _MS_PER_UNIT[least])
    return format_duration(ms)


def instant_ms(
    value: Instant, *, now_ms: int, tz: str | None = None, fold: int | None = None, field: str = "at"
) -> int:
    """Return a point in time in epoch milliseconds, at most ten years after `now_ms`; raises InvalidInput.

    * `tz`: an IANA name. It is required for a time without offset, and refused for a time with one.
    * `fold`: picks the earlier (0) or later (1) time if a local time occurs twice, because the clocks are put back.

    Times in the past are allowed, because only the server knows the current time.
    """
    if fold not in (None, 0, 1):
        raise InvalidInput(f"fold is {shown(fold)}.", hint="Use 0 for the first or 1 for the second.", field="fold")
    wall, rest_ms, own_zone = _wall_time(value, field)
    if isinstance(value, datetime) and own_zone is not None and fold is None:
        fold = value.fold
    offset = _offset(wall, _zone_of(wall, own_zone, tz, field), fold, field)
    ms = -(-(wall - _EPOCH - offset) // _ONE_MS) + rest_ms
    if ms > now_ms + MAX_DURATION_MS:
        raise InvalidInput(f"{field} {wall} is more than 10 years ahead.", hint="Choose an earlier time.", field=field)
    return max(ms, 0)


def format_instant(ms: float) -> str:
    """Return epoch milliseconds as RFC 3339 in UTC. A number outside the calendar becomes 'no date (… ms)'."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=math.floor(ms))).isoformat(timespec='milliseconds')}Z"
    except (OverflowError, ValueError):
        return f"no date ({ms:g} ms)"


def _duration(value: Duration, field: str) -> int:
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidInput(f"{field} {value} is negative.", hint=_DURATION_HINT, field=field)
        return -(value // -_ONE_MS)
    ms = _read_duration(value) if isinstance(value, str) else None
    if ms is None:
        hint = _DURATION_HINT if isinstance(value, str) else f"Use a timedelta or a text. {_DURATION_HINT}"
        raise InvalidInput(f"{field} {shown(value)} is not a duration.", hint=hint, field=field)
    return ms


@lru_cache(maxsize=512)
def _read_duration(text: str) -> int | None:
    """Return the milliseconds of a duration text, or None if the text is not valid.

    Results are cached, because a program uses only a few durations.
    """
    if len(text) > 64:
        return None
    parts = _PART.findall(text) if _COMPACT.fullmatch(text) else []
    if iso := _ISO.fullmatch(text):
        parts = _PART.findall(f"{iso[1]}{iso[2] or ''}".lower())
    ranks = [_RANK[unit] for _, _, unit in parts]
    has_early_fraction = any(fraction for _, fraction, _ in parts[:-1])
    if not parts or has_early_fraction or any(left >= right for left, right in pairwise(ranks)):
        return None
    whole = sum(int(count) * _MS_PER_UNIT[unit] for count, _, unit in parts)
    _, fraction, unit = parts[-1]
    return whole + (-(-int(fraction) * _MS_PER_UNIT[unit] // 10 ** len(fraction)) if fraction else 0)


def _wall_time(value: Instant, field: str) -> tuple[datetime, int, tzinfo | None]:
    """Return the local time, the milliseconds to add to it, and the time zone or offset in the value, or None."""
    if isinstance(value, datetime):
        zone = value.tzinfo if value.utcoffset() is not None else None
        return value.replace(tzinfo=None, fold=0), 0, zone
    match = _RFC3339.fullmatch(value) if isinstance(value, str) and len(value) <= 64 else None
    if match is None:
        raise InvalidInput(f"{field} {shown(value)} is not a point in time.", hint=_INSTANT_HINT, field=field)
    *numbers, fraction, utc, sign, hours, minutes = match.groups()
    try:
        year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
        wall = datetime(year, month, day, hour, minute, second)
        ahead = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = UTC if utc else timezone(ahead if sign == "+" else -ahead) if sign else None
    except ValueError as error:
        raise InvalidInput(
            f"{field} {shown(value)} does not exist: {error}.", hint=_INSTANT_HINT, field=field
        ) from None
    rest_ms = -(-int(fraction) * 1000 // 10 ** len(fraction)) if fraction else 0
    return wall, rest_ms, zone


def _zone_of(wall: datetime, own: tzinfo | None, tz: str | None, field: str) -> tzinfo:
    if own is not None and tz is not None:
        raise InvalidInput(
            f"{field} {wall} has its own offset, but tz={shown(tz)} is given too.",
            hint="Leave out one of them.",
            field="tz",
        )
    if own is None and tz is None:
        raise InvalidInput(
            f"{field} {wall} has no offset, so its time zone is not known.",
            hint="Add Z or an offset such as +01:00"
            + (", or name the time zone, such as tz='Europe/Berlin'." if field == "at" else "."),
            field=field,
        )
    return own if own is not None else _named_zone(tz)


def _named_zone(name: object) -> ZoneInfo:
    try:
        if isinstance(name, str) and len(name) <= 64:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    if not available_timezones():
        raise InvalidInput(
            f"The time zone {shown(name)} cannot be looked up, because this machine has no time zone database.",
            hint="Install one: pip install tzdata, or the package tzdata of the system.",
            field="tz",
        )
    raise InvalidInput(
        f"The time zone {shown(name)} is not known.", hint="Use an IANA name such as Europe/Berlin.", field="tz"
    )


def _offset(wall: datetime, zone: tzinfo, fold: int | None, field: str) -> timedelta:
    """Return the offset of a time zone from UTC at the local time `wall`.

    Near a change of the clocks, `utcoffset` returns the offset before the change for fold=0, and the offset after the
    change for fold=1. If the second offset is larger, `wall` is skipped. If it is smaller, `wall` occurs twice.
    """
    before = wall.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    if before < after:
        raise InvalidInput(
            f"{field} {wall} does not exist in {zone}, because the clocks are put forward.",
            hint="Choose a time before or after the change.",
            field=field,
        )
    if before > after and fold is None:
        raise InvalidInput(
            f"{field} {wall} occurs twice in {zone}, because the clocks are put back.",
            hint="Choose one with fold=0 (the first) or fold=1 (the second).",
            field="fold",
        )
    return after if fold else before
