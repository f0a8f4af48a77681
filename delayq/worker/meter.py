"""What a worker counts: how its attempts ended, how late they began and how long they took, by queue and job.

It lies in shared memory, one piece for each child's number and one for the parent, made before the first fork. A child
that takes a dead one's place goes on with its piece, so a death loses nothing and nothing is counted twice; and any
process of the worker can read all of it.

    rows      how many are used
    a row     key (queue << 32 | job), parts of lateness, its sum in ms, then for each outcome: ends without a start
              less those that were fenced, run times by `ENDS_MS`, their sum in ms

Cells of 8 bytes, each written by one process. The main thread of a child counts starts; ends are counted under a lock,
because handlers may run in several threads.
"""

from __future__ import annotations

import mmap
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import add
from typing import Final, NamedTuple

from delayq.core.activity import BOUNDS_MS, LATE, PARTS, TOOK, Spread
from delayq.core.job_types import TIMES_MS
from delayq.core.shards import queue_of
from delayq.worker.slots import Word

OUTCOMES: Final = ("done", "released", "snoozed", "interrupted", "stopped", "discarded", "failed", "fenced")
"""As `JobEnded` names them; an attempt whose settlement came too late is counted as `fenced` instead."""
UNKNOWN: Final = "unknown"
"""The label of jobs that are not registered, so that nobody outside makes labels."""

_ROWS: Final = 512
_LATE_SUM: Final = 1 + PARTS
_FIRST: Final = 2 + PARTS
ENDS_MS: Final = tuple(sorted({*BOUNDS_MS, *TIMES_MS}))
"""Upper ends of the parts that run times are counted in. Parts of a spread and of a job type are made of whole ones of
these, so an attempt is counted once."""
_CELLS: Final = len(ENDS_MS) + 1
_SPREAD_AT: Final = tuple(bisect_left(ENDS_MS, end) + 1 for end in BOUNDS_MS)
_IN_SPREAD: Final = tuple(zip((0, *_SPREAD_AT), (*_SPREAD_AT, _CELLS), strict=True))
_TIME_PARTS: Final = tuple(str(bisect_left(TIMES_MS, end)) for end in (*ENDS_MS, inf))
_PER_OUTCOME: Final = _CELLS + 2
_ROW: Final = _FIRST + len(OUTCOMES) * _PER_OUTCOME
_CLOCK_MS: Final = int(Word.CLOCK_MS)
_NUMBERS: Final = {word: n for n, word in enumerate(OUTCOMES)}


class Measured(NamedTuple):
    """One row: `ended` by outcome, `took` by outcome, how late those began that did; all run `times` by `ENDS_MS`."""

    queue: str
    job: str
    late: Spread
    ended: tuple[int, ...]
    took: tuple[Spread, ...]
    times: tuple[int, ...]


class Meter:
    """One piece of that memory, for `queues` and `jobs` (those of the registry)."""

    def __init__(self, queues: Sequence[str], jobs: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._jobs = (*jobs, UNKNOWN)
        memory = memoryview(mmap.mmap(-1, 8 * (1 + _ROWS * _ROW)))
        self._ints, self._floats = memory.cast("q"), memory.cast("d")
        self._words: memoryview[float] = memoryview(bytes(8 * (_CLOCK_MS + 1))).cast("d")
        self._lock = threading.Lock()
        self._read: dict[int, int] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._queue_numbers = {queue: n for n, queue in enumerate(self._queues)}
        self._job_numbers = {job: n for n, job in enumerate(self._jobs)}

    def place(self, shard: str, job: str) -> int:
        """Where the row of a delivery's queue and job begins; made when it is asked for first."""
        place = self._places.get((shard, job))
        if place is None:
            place = self._places[shard, job] = self._find(queue_of(shard), job)
        return place

    def tell_time(self, words: memoryview[float]) -> None:
        """Where a child reads the server's time: see `slots.Word`."""
        self._words = words

    def began(self, shard: str, job: str, now_s: float, due_ms: int) -> int:
        """An attempt begins, at `now_s` of the monotonic clock; where its row is."""
        try:
            place = self._places[shard, job]
        except KeyError:
            place = self.place(shard, job)
        late_ms = now_s * 1000 + self._words[_CLOCK_MS] - due_ms
        self._ints[place + 1 + bisect_left(BOUNDS_MS, late_ms)] += 1
        if late_ms > 0.0:
            self._floats[place + _LATE_SUM] += late_ms
        return place

    def done(self, place: int, took_ms: float) -> None:
        """An attempt ended well, as nearly all do."""
        with self._lock:
            self._ints[place + _FIRST + 1 + bisect_left(ENDS_MS, took_ms)] += 1
            self._floats[place + _FIRST + _PER_OUTCOME - 1] += took_ms

    def ended(self, place: int, outcome: str, took_ms: float | None) -> None:
        """An attempt ended after `took_ms`, or, with None, without having started."""
        first = place + _FIRST + _PER_OUTCOME * _NUMBERS[outcome]
        with self._lock:
            if took_ms is None:
                self._ints[first] += 1
            else:
                self._ints[first + 1 + bisect_left(ENDS_MS, took_ms)] += 1
                self._floats[first + _PER_OUTCOME - 1] += took_ms

    def fenced(self, place: int, outcome: str) -> None:
        """An attempt that was counted as `outcome` ('' = not counted) is fenced; its length stays where it is."""
        with self._lock:
            if outcome:
                self._ints[place + _FIRST + _PER_OUTCOME * _NUMBERS[outcome]] -= 1
            self._ints[place + _FIRST + _PER_OUTCOME * _NUMBERS["fenced"]] += 1

    def rows(self) -> Iterator[Measured]:
        """Yield the counts so far, from any process.

        A count that this process has read never goes down. When a fenced attempt was read as `done` before its
        settlement, the next attempt that ends as `done` is the correction.
        """
        for number in range(self._ints[0]):
            place = 1 + number * _ROW
            key = self._ints[place]
            firsts = [place + _FIRST + _PER_OUTCOME * n for n in range(len(OUTCOMES))]
            cells = [self._ints[first + 1 : first + 1 + _CELLS].tolist() for first in firsts]
            sums = [self._floats[first + _PER_OUTCOME - 1] for first in firsts]
            took = tuple(map(_spread_of, cells, sums))
            ended = tuple(self._never_less(first, one.count) for first, one in zip(firsts, took, strict=True))
            late = Spread(tuple(self._ints[place + 1 : place + 1 + PARTS]), self._floats[place + _LATE_SUM])
            times = tuple(map(sum, zip(*cells, strict=True)))
            yield Measured(self._queues[key >> 32], self._jobs[key & 0xFFFFFFFF], late, ended, took, times)

    def _never_less(self, first: int, started: int) -> int:
        count = self._read[first] = max(self._ints[first] + started, self._read.get(first, 0))
        return count

    def _find(self, queue: str, job: str) -> int:
        """The row of a queue and a job. The last ones are left to unknown jobs, one for each queue."""
        with self._lock:
            number = self._queue_numbers.get(queue, 0)
            unknown = len(self._jobs) - 1
            kept = max(0, _ROWS - len(self._queues))
            used = self._ints[0]
            label = self._job_numbers.get(job, unknown)
            for key in dict.fromkeys((number << 32 | label, number << 32 | unknown)):
                for row in range(used):
                    if self._ints[1 + row * _ROW] == key:
                        return 1 + row * _ROW
                if used < (_ROWS if key & 0xFFFFFFFF == unknown else kept):
                    self._ints[1 + used * _ROW] = key
                    self._ints[0] = used + 1
                    return 1 + used * _ROW
            return 1


def _spread_of(cells: list[int], sum_ms: float) -> Spread:
    counts = tuple(sum(cells[start:end]) for start, end in _IN_SPREAD) if any(cells) else Spread().counts
    return Spread(counts, sum_ms)


def together(rows: Iterable[Measured]) -> dict[tuple[str, str], Measured]:
    """The rows of all children as one for each queue and job."""
    found: dict[tuple[str, str], Measured] = {}
    for row in rows:
        before = found.get((row.queue, row.job))
        found[row.queue, row.job] = row if before is None else _sum(before, row)
    return found


def _sum(one: Measured, other: Measured) -> Measured:
    ended = tuple(map(add, one.ended, other.ended))
    took = tuple(map(add, one.took, other.took))
    return Measured(one.queue, one.job, one.late + other.late, ended, took, tuple(map(add, one.times, other.times)))


def by_queue(rows: Iterable[Measured]) -> dict[str, tuple[Spread, Spread]]:
    """How late and how long, of all jobs of a queue together."""
    found: dict[str, tuple[Spread, Spread]] = {}
    for row in rows:
        late, took = found.get(row.queue, (Spread(), Spread()))
        found[row.queue] = late + row.late, sum(row.took, took)
    return found


def measures(before: tuple[Spread, Spread], now: tuple[Spread, Spread]) -> dict[str, float]:
    """What came in between, by the names of an activity's row; empty when nothing did."""
    grown: dict[str, float] = {}
    for name, old, new in zip((LATE, TOOK), before, now, strict=True):
        grown |= {f"{name}:{n}": new.counts[n] - old.counts[n] for n in range(PARTS)}
        grown[f"{name}_ms"] = round(new.sum_ms - old.sum_ms, 3)
    return {name: much for name, much in grown.items() if much > 0}


def job_measures(before: Measured | None, now: Measured) -> dict[str, float]:
    """What one job's row grew by, by the names of a job type's row; empty when it did not."""
    if now == before:
        return {}
    old = before or Measured("", "", Spread(), (0,) * len(OUTCOMES), (Spread(),) * len(OUTCOMES), (0,) * _CELLS)
    grown: Counter[str] = Counter()
    for names, newer, older in ((OUTCOMES, now.ended, old.ended), (_TIME_PARTS, now.times, old.times)):
        for name, new, past in zip(names, newer, older, strict=True):
            grown[name] += new - past
    counts: dict[str, float] = dict(grown)
    counts["took_ms"] = round(sum(one.sum_ms for one in now.took) - sum(one.sum_ms for one in old.took), 3)
    return {name: much for name, much in counts.items() if much > 0}
