"""Durations as people write them, read into milliseconds."""

import math
import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

from delayq.core.errors import InvalidInput

Duration = str | timedelta
"""`"90s"`, `"15m"`, `"1h30m"`, `"1.5h"` or a timedelta. A bare number is refused, because its unit would be a guess."""

MS_PER_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MAX_MS: Final = 10 * 365 * 86_400_000

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def to_ms(duration: Duration, *, field: str = "delay") -> int:
    """Return a duration in whole milliseconds, rounded up, or raise InvalidInput that names `field`."""
    exact = duration / timedelta(milliseconds=1) if isinstance(duration, timedelta) else _read(duration)
    if exact is None:
        raise InvalidInput(f"{field} {duration!r} is no duration: write 500ms, 90s, 15m, 1h30m or 2d", field=field)
    if not 0 <= exact <= MAX_MS:
        raise InvalidInput(f"{field} {duration!r} is out of range: use 0s to 3650d", field=field)
    return math.ceil(exact)


@lru_cache(maxsize=256)
def _read(text: str) -> float | None:
    """Return a written duration in milliseconds; None when it is none. Programs use few different ones."""
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * MS_PER_UNIT[unit] for number, unit in _PART.findall(text))
