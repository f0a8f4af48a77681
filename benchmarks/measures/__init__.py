"""One module for each measure; `run(plan)` returns its report."""

from __future__ import annotations

from typing import Protocol

from benchmarks.figures import Report
from benchmarks.measures import (
    burst,
    changing,
    consume,
    dashboard,
    durability,
    growth,
    herd,
    http,
    idle,
    lateness,
    layers,
    life,
    limits,
    many_queues,
    masters,
    memory,
    promote,
    schedule_many,
    schedule_one,
    scrape,
    start,
    worker_memory,
)
from benchmarks.plan import Plan


class Measure(Protocol):
    """What a measure's module offers."""

    NAME: str

    def run(self, plan: Plan, /) -> Report:
        """Measure and report."""


_ALL: tuple[Measure, ...] = (
    schedule_many, schedule_one, promote, consume, lateness, burst, herd, idle, memory, growth, layers, limits,
    durability, http, masters, changing, dashboard, scrape, many_queues, start, life, worker_memory,
)  # fmt: skip
MEASURES: dict[str, Measure] = {measure.NAME: measure for measure in _ALL}
