"""From the due time to the handler's start, by the machine's clock, in the child's process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.clock import offset_us
from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.fill import fill
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import NAME as JOB
from benchmarks.work import QUEUE, payload, registry_of
from delayq.core.spec import JobSpec

NAME = "lateness"
RATES = {500: (10.0, 0.8, 3.0), 5_000: (5.0, None, 20.0)}
"""Jobs a second: for how many seconds, and what is wanted of the median and of the 99th percentile in ms."""
WAITING = 5_000_000
LEAD_S = 1.0
PATIENCE_S = 10.0


def run(plan: Plan) -> Report:
    """At each rate, while nothing else waits and while 5,000,000 jobs do: two servers, in turns."""
    rows: list[Row] = []
    notes: list[str] = []
    with ExitStack() as stack, quiet_logs():
        sides: list[tuple[int, Any, Rig]] = []
        for waiting in (0, plan.size(WAITING)):
            server = stack.enter_context(plan.server())
            client, rig = stack.enter_context(server.client()), stack.enter_context(rig_on(server))
            fill(client, rig.options.prefix, waiting)
            sides.append((waiting, client, rig))
        for rate, (spread_s, *wanted) in RATES.items():
            runs = _in_turns(plan, [rig for _, _, rig in sides], rate, plan.seconds(spread_s))
            for (waiting, _, _), found in zip(sides, runs, strict=True):
                others = f"{waiting:,} others waiting" if waiting else "nothing else waiting"
                rows += _rows(f"{rate:,} jobs/s, {others}", found, wanted)
        for waiting, client, _ in sides:
            low, high = offset_us(client)
            notes.append(f"Server's clock minus ours, {waiting:,} waiting: between {low:.0f} and {high:.0f} µs.")
    return Report(rows, notes)


def _in_turns(plan: Plan, rigs: Sequence[Rig], rate: int, spread_s: float) -> list[list[list[float]]]:
    """The runs of each rig, A B B A: a slow minute of the machine is a slow minute for both."""
    found: list[list[list[float]]] = [[] for _ in rigs]
    numbers = list(range(len(rigs)))
    for turn in range(plan.runs):
        for number in numbers if turn % 2 == 0 else reversed(numbers):
            found[number].append(one_run(rigs[number], int(rate * spread_s), spread_s))
    return found


def one_run(rig: Rig, jobs: int, spread_s: float) -> list[float]:
    """Schedule all, then let them fall due under a running worker; how late each began, in ms."""
    starts = Marks(jobs)
    with rig.running(registry_of(_handler(starts))):
        due = due_over(jobs, spread_s)
        rig.client.schedule_many([JobSpec(name=JOB, data=payload(n), at=at, queue=QUEUE) for n, at in enumerate(due)])
        starts.wait(LEAD_S + spread_s + PATIENCE_S)
    due_ms = [int(at.timestamp() * 1_000 + 0.5) for at in due]
    return [started_us / 1_000 - due for started_us, due in zip(starts.cells.tolist(), due_ms, strict=True)]


def due_over(jobs: int, spread_s: float) -> list[datetime]:
    """Due times that lie evenly over `spread_s`, on whole milliseconds."""
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LEAD_S + 1)
    return [begin + timedelta(milliseconds=int(number * spread_s * 1_000 / jobs)) for number in range(jobs)]


def _handler(starts: Marks) -> Any:
    cells = starts.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        cells[order_id] = time.time_ns() / 1_000

    return handler


def _rows(what: str, runs: list[list[float]], wanted: Sequence[float | None]) -> list[Row]:
    cuts = [statistics.quantiles(run, n=100) for run in runs]
    p50 = Samples(tuple(cut[49] for cut in cuts), "ms")
    p99 = Samples(tuple(cut[98] for cut in cuts), "ms")
    earliest = Samples((min(min(run) for run in runs),), "ms")
    latest = Samples(tuple(max(run) for run in runs), "ms")
    of_p50, of_p99 = (None if most is None else Target("≤", most) for most in wanted)
    return [
        Row(f"lateness p50, {what}", p50, target=of_p50),
        Row(f"lateness p99, {what}", p99, target=of_p99),
        Row(f"earliest start of all, {what}", earliest, target=Target("≥", 0.0)),
        Row(f"lateness at most, {what}", latest),
    ]
