"""How much to measure, and the one way to measure two things side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Samples
from benchmarks.server import PrivateServer
from delayq.redis.server_binary import ServerBinary

QUICK_DIVISOR = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asked for. `quick` is a smoke run: everything is tried, no figure means anything."""

    binary: ServerBinary
    quick: bool = False
    repeats: int = 5
    growth: int = 1_000_000

    def size(self, normal: int) -> int:
        """How many jobs, when `normal` are right for a real run."""
        return max(20, normal // QUICK_DIVISOR) if self.quick else normal

    def seconds(self, normal: float) -> float:
        """How long, when `normal` is right for a real run."""
        return min(normal, 1.0) if self.quick else normal

    @property
    def runs(self) -> int:
        """How often each side is measured."""
        return 2 if self.quick else self.repeats

    def server(self, *options: str) -> PrivateServer:
        """A fresh server; use it in a `with` statement."""
        return PrivateServer(self.binary, *options)


def timed(work: Callable[[], object]) -> float:
    """Seconds `work` took. Rubbish of earlier work is collected first, so that nobody pays for another's."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def side_by_side(
    plan: Plan, jobs: int, ours: Callable[[], float], raw: Callable[[], float], unit: str = "jobs/s"
) -> tuple[Samples, Samples]:
    """Rates of two rivals that each return the seconds they took for `jobs`.

    They take turns, A B B A A B …, after one unmeasured turn each (sockets, scripts, caches): whatever else the
    machine does hits both alike, and neither always goes first.
    """
    ours()
    raw()
    found: dict[Callable[[], float], list[float]] = {ours: [], raw: []}
    for turn in range(plan.runs):
        for rival in (ours, raw) if turn % 2 == 0 else (raw, ours):
            found[rival].append(jobs / rival())
    return Samples(tuple(found[ours]), unit), Samples(tuple(found[raw]), unit)
