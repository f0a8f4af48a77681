"""How often something may start: a count in a time, by one of three ways of counting.

window      60 in a minute that begins with the first start; then the next one may begin
sliding     60 in any minute, wherever it begins
bucket      one a second on average, and up to `burst` at once after a rest
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from delayq.core.errors import ConfigError
from delayq.core.limit_names import check_key
from delayq.core.shown import shown
from delayq.core.when import duration_ms

MOST: Final = 1_000_000


class RateKind(StrEnum):
    """How starts are counted."""

    WINDOW = "window"
    SLIDING = "sliding"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`most` starts in `per_ms`, for one `key`. Make it with `window`, `sliding`, `bucket`, `per_minute` and so on."""

    kind: RateKind
    most: int
    per_ms: int
    burst: int
    key: str = ""

    @classmethod
    def window(cls, most: int, per: str | timedelta) -> Self:
        """So many in a window that begins with the first; twice as many may meet where two windows do.

        Raises `ConfigError` and `InvalidDuration`, as the other makers.
        """
        return cls(RateKind.WINDOW, _count("most", most), _span(per), most)

    @classmethod
    def sliding(cls, most: int, per: str | timedelta) -> Self:
        """Never more than so many within any such time. Exact up to 64; above that a place may be free a 60th later."""
        return cls(RateKind.SLIDING, _count("most", most), _span(per), most)

    @classmethod
    def bucket(cls, most: int, per: str | timedelta, *, burst: int | None = None) -> Self:
        """So many on average, evenly; up to `burst` (default: `most`) at once after a rest."""
        counted = _count("most", most)
        return cls(RateKind.BUCKET, counted, _span(per), counted if burst is None else _count("burst", burst))

    @classmethod
    def per_second(cls, most: int) -> Self:
        """A window of a second."""
        return cls.window(most, "1s")

    @classmethod
    def per_minute(cls, most: int) -> Self:
        """A window of a minute."""
        return cls.window(most, "1m")

    @classmethod
    def per_hour(cls, most: int) -> Self:
        """A window of an hour."""
        return cls.window(most, "1h")

    @classmethod
    def per_day(cls, most: int) -> Self:
        """A window of a day."""
        return cls.window(most, "1d")

    def by(self, key: str | int) -> RateLimit:
        """The same for each of these keys apart. Raises `InvalidInput` for what cannot be one."""
        return replace(self, key=check_key(key))


def _count(word: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"A rate limit has {word}={shown(value)}.", hint=f"Give a whole number from 1 to {MOST:,}.")
    return value


def _span(per: str | timedelta) -> int:
    span_ms = duration_ms(per)
    if span_ms < 1:
        raise ConfigError("A rate limit is counted within no time at all.", hint='Give a time, such as "1m".')
    return span_ms


def fields_of(rates: tuple[RateLimit, ...]) -> tuple[str, ...]:
    """What each is called in Redis: its key; with a number when an earlier one has the same."""
    names: list[str] = []
    for rate in rates:
        same = sum(other.key == rate.key for other in rates[: len(names)])
        names.append(rate.key if not same else f"{rate.key}#{same + 1}")
    return tuple(names)
