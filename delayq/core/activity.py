"""What happened on a queue, minute by minute and day by day: counts of moves, and how late and how long attempts were.

    row       what Redis keeps of one minute: a JSON object of numbers (`scheduled`, `late:3`, `took_ms`, …)
    span      one or more minutes together
    spread    how many of the attempts were how late, or took how long: counts in fixed bounds

Rows hold only what is not zero. What a reader does not know it leaves alone, so later versions may count more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import msgspec

MINUTE_MS: Final = 60_000
DAY_MINUTES: Final = 1_440
"""How many minutes are kept."""
DAY_MS: Final = DAY_MINUTES * MINUTE_MS
HISTORY_DAYS: Final = 90
"""How many days are kept."""
BOUNDS_MS: Final = (
    0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0,
    1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0, 3_600_000.0,
)  # fmt: skip
"""Upper ends of a spread's parts, in ms; what is above the last has a part of its own. Part of the protocol."""
PARTS: Final = len(BOUNDS_MS) + 1
PROMOTED_LATE: Final = (*(f"promoted_late_{n}" for n in range(1, PARTS + 1)), "promoted_late_us")
"""The fields of `meta` that tell how late jobs were promoted: a count for each part, then the sum."""

LATE: Final = "late"
TOOK: Final = "took"
COUNTERS: Final = (
    "scheduled", "promoted", "acked", "released", "failed", "cancelled", "reclaimed", "handed_back",
)  # fmt: skip
"""Those that scripts keep in `meta` (with `_total`), in the order of `tallied`."""


def part_of(ms: float) -> int:
    """The part of a spread that a length belongs to. What is early by the server's clock counts as on time."""
    return bisect_left(BOUNDS_MS, ms)


@dataclass(frozen=True, slots=True)
class Spread:
    """Lengths of time as counts: `counts[n]` were at most `BOUNDS_MS[n]`, the last above all; `sum_ms` of them all."""

    counts: tuple[int, ...] = (0,) * PARTS
    sum_ms: float = 0.0

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    @property
    def mean_ms(self) -> float | None:
        """The mean; None when there are none."""
        return self.sum_ms / self.count if self.count else None

    def percentile(self, share: float) -> float | None:
        """The length in ms that `share` (0.99) of them do not exceed, as well as the bounds tell; None without any.

        Within a part they count as spread evenly. Above the last bound nothing is known but that bound.
        """
        if not 0.0 < share <= 1.0:
            raise ValueError(f"a share is above 0 and at most 1, not {share}")
        rank, below, start = share * self.count, 0, 0.0
        if not self.count:
            return None
        for n, end in enumerate(BOUNDS_MS):
            if below + self.counts[n] >= rank:
                return start + (end - start) * (rank - below) / self.counts[n]
            below, start = below + self.counts[n], end
        return BOUNDS_MS[-1]

    def __add__(self, other: Spread) -> Spread:
        if not other.sum_ms and not any(other.counts):
            return self
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return Spread(counts, self.sum_ms + other.sum_ms)


@dataclass(frozen=True, slots=True)
class Span:
    """What happened from `start_ms` on, for as long as its `Activity` says.

    `scheduled`: jobs taken. `promoted`: moved to the stream when due. `started`: attempts begun by delayq's workers.
    `done`: ended well, were discarded, or stopped as asked. `released`: to be tried again, or snoozed. `failed`: given
    up. `cancelled`: by people, before they ran. `reclaimed`: their worker vanished. `handed_back`: read and not
    started. `late`: from due time to the handler's start; `took`: how long attempts ran.
    """

    start_ms: int
    scheduled: int = 0
    promoted: int = 0
    started: int = 0
    done: int = 0
    released: int = 0
    failed: int = 0
    cancelled: int = 0
    reclaimed: int = 0
    handed_back: int = 0
    late: Spread = field(default_factory=Spread)
    took: Spread = field(default_factory=Spread)

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name."""
        return {name: getattr(self, name) for name in COUNTS}


COUNTS: Final = tuple(one.name for one in fields(Span) if one.name not in ("start_ms", LATE, TOOK))
"""The names of a span's counts."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened on a queue ('' = on all of them) in spans of `span_ms`, the oldest first; the last has begun."""

    queue: str
    now_ms: int
    span_ms: int
    spans: tuple[Span, ...]

    @property
    def total(self) -> Span:
        """All spans together."""
        return joined(self.spans[0].start_ms if self.spans else self.now_ms, self.spans)


def joined(start_ms: int, spans: Iterable[Span]) -> Span:
    """Several spans as one that begins at `start_ms`."""
    counts: Counter[str] = Counter()
    late, took = Spread(), Spread()
    for span in spans:
        counts.update(span.counts)
        late, took = late + span.late, took + span.took
    return Span(start_ms, **counts, late=late, took=took)


def span_of(start_ms: int, rows: Iterable[Mapping[str, Any]]) -> Span:
    """Rows of minutes as one span. What is no number is somebody else's, and left out."""
    numbers: Counter[str] = Counter()
    for row in rows:
        numbers.update({name: value for name, value in row.items() if type(value) in (int, float) and value > 0})
    if not numbers:  # most minutes of most queues
        return Span(start_ms)
    counts = {name: int(numbers["acked" if name == "done" else name]) for name in COUNTS if name != "started"}
    late, took = _spread(numbers, LATE), _spread(numbers, TOOK)
    return Span(start_ms, **counts, started=late.count, late=late, took=took)


def _spread(numbers: Mapping[str, float], name: str) -> Spread:
    counts = tuple(int(numbers.get(f"{name}:{n}", 0)) for n in range(PARTS))
    return Spread(counts, float(numbers.get(f"{name}_ms", 0)))


def spread_of(numbers: Sequence[bytes | str | None]) -> Spread:
    """A spread from its `PROMOTED_LATE`. What is missing, or no number, counts as none."""
    counts = [int(number) if number and number.isdigit() else 0 for number in numbers]
    return Spread(tuple(counts[:PARTS]), counts[PARTS] / 1000)


def row_of(raw: bytes, minute: int | None = None) -> Mapping[str, Any]:
    """A row as Redis keeps it; empty for one that cannot be read, and for that of another minute."""
    try:
        row = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return row if isinstance(row, dict) and row.get("minute") == minute else {}  # `sums` and days have none


def not_tallied(tallied: str, totals: Sequence[int]) -> Mapping[str, int]:
    """How far the counters are ahead of what was written down, as a row."""
    seen = [int(number) for number in tallied.split() if number.isdigit()] or [0] * len(totals)
    ahead = {}
    for name, total, before in zip(COUNTERS, totals, seen, strict=False):
        ahead[name] = total - before if total >= before else total
    return ahead


def spans_of(
    rows: Mapping[int, Sequence[Mapping[str, Any]]], now_ms: int, each: int, count: int, unit_ms: int = MINUTE_MS
) -> Iterator[Span]:
    """`count` spans of `each` minutes up to now, from rows by minute; or of days, with `unit_ms` and rows by day."""
    last = now_ms // unit_ms
    for n in range(count):
        first = last + 1 - each * (count - n)
        yield span_of(first * unit_ms, (row for number in range(first, first + each) for row in rows.get(number, ())))
