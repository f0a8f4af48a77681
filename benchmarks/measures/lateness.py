"""From the due time to the handler's start, with mover and worker as threads of one process."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.clock import offset_us
from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.fill import fill
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.work import NAME as JOB
from benchmarks.work import QUEUE, payload, registry_of
from delayq.core.spec import JobSpec

NAME = "lateness"
JOBS = 5_000
SPREAD_S = 10.0
WAITING = 500_000
LEAD_S = 1.0
PATIENCE_S = 10.0


@dataclass(slots=True)
class Starts:
    """When each handler began, by the machine's clock."""

    wanted: int
    due_ms: dict[int, int] = field(default_factory=dict)
    late_us: list[float] = field(default_factory=list)

    def handler(self, order_id: int, customer: str, total: str, note: str) -> None:
        """Note how long after its due time this job starts."""
        self.late_us.append(time.time_ns() / 1_000 - self.due_ms[order_id] * 1_000)

    def wait(self, seconds: float) -> None:
        """Until all have started; a job that never comes is an error and no figure."""
        deadline = time.monotonic() + seconds
        while len(self.late_us) < self.wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(self.late_us)} of {self.wanted} jobs started")
            time.sleep(0.05)


def run(plan: Plan) -> Report:
    """Each run is 5,000 jobs over 10 s; one more with 500,000 jobs waiting behind them."""
    rows: list[Row] = []
    notes: list[str] = []
    for waiting in (0, plan.size(WAITING)):
        with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
            fill(client, rig.options.prefix, waiting)
            runs = [one_run(rig, plan.size(JOBS), plan.seconds(SPREAD_S)) for _ in range(plan.runs)]
            low, high = offset_us(client)
        rows += _rows(f"{waiting:,} others waiting" if waiting else "nothing else waiting", runs)
        notes.append(f"Server's clock minus ours, {waiting:,} waiting: between {low:.0f} and {high:.0f} µs.")
    return Report(rows, notes)


def one_run(rig: Rig, jobs: int, spread_s: float) -> list[float]:
    """Schedule all, then let them fall due under a running worker; how late each began, in ms."""
    starts = Starts(jobs)
    with rig.running(registry_of(_handler(starts))):
        rig.client.schedule_many(due_over(starts, jobs, spread_s))
        starts.wait(LEAD_S + spread_s + PATIENCE_S)
    return [late / 1_000 for late in starts.late_us]


def due_over(starts: Starts, jobs: int, spread_s: float) -> list[JobSpec]:
    """Jobs whose due times lie evenly over `spread_s`, on whole milliseconds."""
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LEAD_S + 1)
    found = []
    for number in range(jobs):
        at = begin + timedelta(milliseconds=int(number * spread_s * 1_000 / jobs))
        starts.due_ms[number] = int(at.timestamp() * 1_000 + 0.5)
        found.append(JobSpec(name=JOB, data=payload(number), at=at, queue=QUEUE))
    return found


def _handler(starts: Starts) -> Any:
    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        starts.handler(order_id, customer, total, note)

    return handler


def _rows(what: str, runs: list[list[float]]) -> list[Row]:
    cuts = [statistics.quantiles(run, n=100) for run in runs]
    p50 = Samples(tuple(cut[49] for cut in cuts), "ms")
    p99 = Samples(tuple(cut[98] for cut in cuts), "ms")
    earliest = Samples((min(min(run) for run in runs),), "ms")
    latest = Samples(tuple(max(run) for run in runs), "ms")
    return [
        Row(f"lateness p50, {what}", p50, target=Target("≤", 1.0)),
        Row(f"lateness p99, {what}", p99, target=Target("≤", 5.0)),
        Row(f"earliest start of all, {what}", earliest, target=Target("≥", 0.0)),
        Row(f"lateness at most, {what}", latest),
    ]
