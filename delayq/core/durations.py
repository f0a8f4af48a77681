"""Durations: what people write in, whole milliseconds out, and back again.

    duration   part+                             15m  1h30m  1.5h  500ms  2d  1w  0s
               P [nW] [nD] [T [nH] [nM] [nS]]    PT15M  P1DT2H
    part       n followed by w d h m s ms        the largest unit first, each once
    n          the digits 0-9                    the last n may have a fraction: 1h1.5m, PT0.5S

Nothing is guessed: no sign, no number without a unit, no white space, no months or years (their length
varies). A day is 24 hours whatever the clocks do. The arithmetic is on integers and rounds once, at the end, up to
a whole millisecond, so that nothing runs early: 0.1ms is 1.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from typing import Final

from delayq.core.errors import InvalidDuration
from delayq.core.shown import shown

# The longest that ten years can be: the same day ten years from now is always within reach.
MAX_DURATION_MS: Final = 3653 * 86_400_000

_LONGEST_TEXT: Final = 64
_MS_PER_UNIT: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SECOND_MS: Final = 1_000
_RANK: Final = {unit: rank for rank, unit in enumerate(_MS_PER_UNIT)}
_SHOWN_UNITS: Final = ("d", "h", "m")  # people read 14d more easily than 2w

_N: Final = r"[0-9]+(?:\.[0-9]+)?"
_PART: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|[wdhms])")
_COMPACT: Final = re.compile(rf"(?:{_N}(?:ms|[wdhms]))+")
_ISO: Final = re.compile(rf"P(?=[0-9T])((?:{_N}W)?(?:{_N}D)?)(?:T(?=[0-9])((?:{_N}H)?(?:{_N}M)?(?:{_N}S)?))?")

_WRITTEN: Final = re.compile(r"-?[0-9.]+[a-z]+")
_HINT: Final = "Write it like 15m, 1h30m, 1.5h, 2d or PT15M."
# What people get wrong, and how to say it; the first that is found speaks.
_CAUSES: Final = (
    (re.compile(r"\A\Z"), "it is empty"),
    (re.compile(r"[+\-\u2212]"), "it has a sign"),
    (re.compile(r"\s"), "it has white space in it"),
    (re.compile(r"[^\x00-\x7f]"), "it has characters beyond ASCII in it"),
    (re.compile(r"\A[0-9]+(?:\.[0-9]+)?\Z"), "it has no unit"),
    (re.compile(r"\AP[^T]*[YM]|[0-9](?:mo|mon|months?|y|yrs?|years?)\Z"), "months and years vary in length"),
    (re.compile(r"\A[0-9].*[A-Z]|\Ap"), "its letters are in the wrong case"),
    (re.compile(r"[0-9]\Z"), "its last number has no unit"),
)


def duration_ms(value: str | timedelta) -> int:
    """The milliseconds, 0 to ten years, that `value` stands for; raises InvalidDuration for anything else."""
    ms = _read(value)
    if ms > MAX_DURATION_MS:
        text = shown(value if isinstance(value, str) else format_duration(ms))
        raise InvalidDuration(f"{text} is longer than 10 years.", hint="Use at most 3653d.")
    return ms


def format_duration(ms: int) -> str:
    """`ms` for people: '15m', '1h30m', '2d', '1.5s', '500ms', '0s'.

    `duration_ms` reads it back exactly when `ms` is 0 to ten years. Outside of that nothing is refused: a
    negative one gets a minus sign.
    """
    if ms < 0:
        return f"-{format_duration(-ms)}"
    text = ""
    for unit in _SHOWN_UNITS:
        count, ms = divmod(ms, _MS_PER_UNIT[unit])
        text += f"{count}{unit}" if count else ""
    seconds, rest = divmod(ms, 1000)
    if rest and not seconds:
        return f"{text}{rest}ms"
    if rest:
        return f"{text}{seconds}.{f'{rest:03}'.rstrip('0')}s"
    return f"{text}{seconds}s" if seconds or not text else text


def span(ms: float) -> str:
    """`ms` for people who read a sentence: its two largest units, as '14m 59s', '2d 3h', '250ms'.

    From a second on it is rounded to whole seconds.
    """
    whole = round(ms) if abs(ms) < _SECOND_MS else round(ms / _SECOND_MS) * _SECOND_MS
    return " ".join(_WRITTEN.findall(format_duration(whole))[:2])


def _read(value: object) -> int:
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, timedelta):
        return _from_timedelta(value)
    raise _refused(value, "it has no unit" if isinstance(value, int | float) else "it is neither text nor a timedelta")


def rounded_up(numerator: int, denominator: int) -> int:
    """The quotient, rounded up to a whole number."""
    return -(-numerator // denominator)


def _parse(text: str) -> int:
    if len(text) > _LONGEST_TEXT:
        raise _refused(text, f"it is longer than {_LONGEST_TEXT} characters")
    if _COMPACT.fullmatch(text):
        parts = _PART.findall(text)
    elif iso := _ISO.fullmatch(text):
        # Date and time are read apart: the M of minutes may only stand behind the T, which the pattern saw to.
        parts = _PART.findall(f"{iso[1]}{iso[2] or ''}".lower())
    else:
        raise _refused(text, next((cause for pattern, cause in _CAUSES if pattern.search(text)), ""))
    ranks = [_RANK[unit] for _, _, unit in parts]
    if any(left >= right for left, right in pairwise(ranks)):
        raise _refused(text, "its units must go from large to small, each once")
    if any(fraction for _, fraction, _ in parts[:-1]):
        raise _refused(text, "only its last number may have a fraction")
    whole = sum(int(count) * _MS_PER_UNIT[unit] for count, _, unit in parts)
    _, fraction, unit = parts[-1]
    return whole + (rounded_up(int(fraction) * _MS_PER_UNIT[unit], 10 ** len(fraction)) if fraction else 0)


def _from_timedelta(value: timedelta) -> int:
    if value.days < 0:
        raise _refused(str(value), "it is negative")
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return rounded_up(micros, 1000)


def _refused(value: object, why: str) -> InvalidDuration:
    return InvalidDuration(f"{shown(value)} is no duration{f': {why}' if why else ''}.", hint=_HINT)
