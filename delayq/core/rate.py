"""How many in how long: `10/s`, `600/m`, `5000/h`; and when the next one may go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from delayq.core.errors import InvalidInput
from delayq.core.shown import shown

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600}
_FORM: Final = re.compile(r"([0-9]{1,7})/([smh])")


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` in `seconds`, evenly: one every `spacing_s`."""

    count: int
    seconds: int

    @property
    def spacing_s(self) -> float:
        """From one to the next."""
        return self.seconds / self.count


def parse_rate(text: str) -> Rate:
    """Read `10/s`, `600/m` or `5000/h`; raises `InvalidInput` for anything else."""
    found = _FORM.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise InvalidInput(f"{shown(text)} is no rate.", hint="Write it like 10/s, 600/m or 5000/h.")
    return Rate(int(found[1]), _UNIT_S[found[2]])


class Pace:
    """Keeps to a rate, or to none. What was late is not made up for: the rate holds at every moment.

    Times are seconds of any clock that only goes forward.
    """

    def __init__(self, rate: Rate | None) -> None:
        self._spacing_s = rate.spacing_s if rate else 0.0
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next one; it counts as gone then."""
        starts_s = max(now_s, self._next_s)
        self._next_s = starts_s + self._spacing_s
        return starts_s - now_s
