"""How the jobs of each name ran: attempts by outcome, and run times in a histogram fine enough for percentiles.

    job type   all jobs of one name
    row        what Redis keeps of one job type in one hour or one day: a JSON object of numbers

A row has `at` (hours or days since 1970), a count for each outcome of a worker's attempt (`done`, `released`, …),
`took_ms` (the sum of the run times) and the histogram: the member `"12"` counts the run times in part 12. Members that
are zero are left out, and a reader leaves alone members that it does not know.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

import msgspec

HOUR_MS: Final = 3_600_000
HOURS: Final = 24
"""How many whole hours are kept beside the present one."""
DAYS: Final = 90
"""How many whole days (of UTC) are kept beside the present one."""
MOST_NAMES: Final = 200
"""How many names a queue keeps for one hour or day; the attempts of all others are summed."""
OTHERS: Final = "(other)"
"""What that sum is called."""
SHORTEST_MS: Final = 0.125
STEPS: Final = 118
_HALF_A_PART: Final = math.sqrt(math.sqrt(math.sqrt(2.0)))
TIMES_MS: Final = tuple(SHORTEST_MS * math.pow(2.0, n / 4) for n in range(STEPS + 1))
"""Upper ends of the histogram's parts in ms, each 19 % above the one before: 0.125 ms to 26 hours. Longer times have
the last part. Part of the protocol."""
TIME_PARTS: Final = len(TIMES_MS) + 1


@dataclass(frozen=True, slots=True)
class JobType:
    """How the attempts of all jobs of one name ended, in one window.

    `name` is `unknown` for jobs without a handler in their worker, and `(other)` for those beyond the 200 names that
    a queue keeps. `queues`: where they ran. `done`: attempts that ended well. `retried`: failed, and tried again.
    `failed`: failed for good. `other`: snoozed, interrupted, discarded, or stopped as asked. `times`: run times of the
    attempts that started, by part of `TIMES_MS`; `took_ms` is their sum.
    """

    name: str
    queues: tuple[str, ...] = ()
    done: int = 0
    retried: int = 0
    failed: int = 0
    other: int = 0
    took_ms: float = 0.0
    times: tuple[int, ...] = (0,) * TIME_PARTS

    @property
    def attempts(self) -> int:
        """How many attempts ended."""
        return self.done + self.retried + self.failed + self.other

    @property
    def failure_rate(self) -> float | None:
        """The share (0 to 1) of attempts that failed, among those that ended well or failed; None without any."""
        failures = self.retried + self.failed
        return failures / (failures + self.done) if failures + self.done else None

    @property
    def mean_ms(self) -> float | None:
        """The mean run time in ms; None when no attempt ran."""
        return self.took_ms / sum(self.times) if any(self.times) else None

    def percentile(self, share: float) -> float | None:
        """Return the run time in ms that `share` (0.99) of the attempts did not exceed; None when none ran.

        The answer is the geometric middle of its part: at most 9.1 % from the true one, from 0.1 ms to 26 hours.
        """
        if not 0.0 < share <= 1.0:
            raise ValueError(f"a share is above 0 and at most 1, not {share}")
        if not any(self.times):
            return None
        rank = share * sum(self.times)
        part = next(n for n, below in enumerate(accumulate(self.times)) if below >= rank)
        return TIMES_MS[min(part, STEPS)] if part in (0, STEPS + 1) else TIMES_MS[part] / _HALF_A_PART


@dataclass(frozen=True, slots=True)
class JobTypes:
    """The job types of a queue ('' = of all queues) from `since_ms` to `now_ms`, those with most attempts first."""

    queue: str
    since_ms: int
    now_ms: int
    types: tuple[JobType, ...]

    def per_minute(self, one: JobType) -> float:
        """Return how many attempts of a job type ended per minute, on average."""
        return one.attempts * 60_000 / max(self.now_ms - self.since_ms, 1)


ORDERS: Final[Mapping[str, Callable[[JobType], float]]] = MappingProxyType(
    {
        "attempts": lambda one: one.attempts,
        "p50": lambda one: one.percentile(0.5) or 0.0,
        "p99": lambda one: one.percentile(0.99) or 0.0,
        "time": lambda one: one.took_ms,
        "failures": lambda one: one.retried + one.failed,
        "failure-rate": lambda one: one.failure_rate or 0.0,
    }
)
"""What job types can be sorted by, the largest first."""


def ordered(types: Iterable[JobType], by: str) -> tuple[JobType, ...]:
    """Return job types sorted by one of `ORDERS`, the largest first, equal ones by attempts and name."""
    measure = ORDERS[by]
    return tuple(sorted(types, key=lambda one: (-measure(one), -one.attempts, one.name)))


def read_row(raw: bytes) -> Mapping[str, Any]:
    """Return a row as Redis keeps it; empty for one that cannot be read."""
    try:
        row = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def joined(rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> tuple[JobType, ...]:
    """Return the job types of rows of (queue, name, row), those with most attempts first."""
    numbers: dict[str, Counter[str]] = {}
    queues: dict[str, set[str]] = {}
    for queue, name, row in rows:
        found = {key: value for key, value in row.items() if type(value) in (int, float) and value > 0}
        numbers.setdefault(name, Counter()).update(found)
        queues.setdefault(name, set()).add(queue)
    types = [_type_of(name, tuple(sorted(queues[name])), numbers[name]) for name in numbers]
    return ordered(types, "attempts")


def _type_of(name: str, queues: tuple[str, ...], numbers: Mapping[str, float]) -> JobType:
    done, retried, failed = (int(numbers.get(key, 0)) for key in ("done", "released", "failed"))
    other = sum(int(numbers.get(key, 0)) for key in ("snoozed", "interrupted", "discarded", "stopped"))
    times = tuple(int(numbers.get(str(n), 0)) for n in range(TIME_PARTS))
    return JobType(name or OTHERS, queues, done, retried, failed, other, float(numbers.get("took_ms", 0)), times)
