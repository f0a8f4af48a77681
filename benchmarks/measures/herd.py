"""1,000,000 jobs due within one second: how long until none is left, and how long a stranger's PING takes meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.figures import Report, Row, Samples
from benchmarks.fill import fill
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs
from benchmarks.server import PrivateServer
from benchmarks.shared import Marks
from benchmarks.work import registry_of, specs
from delayq.core.options import Options
from delayq.worker.fork import fork, is_told

NAME = "herd"
JOBS = 1_000_000
SPREAD_MS = 1_000
FILL_S = 20.0
LEAD_S = 6.0
"""Between the last job's arrival and the first one's time: a mover looks every five seconds at least."""
PATIENCE_S = 150.0
LOOK_S = 0.02
EVERY_S = 0.002
PINGS = 100_000
FIGURES = (
    ("until none is left", "s"),
    ("a stranger's PING, p50", "ms"),
    ("the same, p99", "ms"),
    ("the longest PING", "ms"),
    ("PING before they were due, p99", "ms"),
)


def run(plan: Plan) -> Report:
    """Each run on a fresh server: one worker with one child, and a process that sends a PING every 2 ms."""
    jobs = plan.size(JOBS)
    runs = zip(*(_once(plan, jobs) for _ in range(plan.runs)), strict=True)
    return Report(
        [
            Row(f"{jobs:,} due in one second: {what}", Samples(figures, unit))
            for (what, unit), figures in zip(FIGURES, runs, strict=True)
        ]
    )


def _once(plan: Plan, jobs: int) -> tuple[float, ...]:
    """The figures of one run, in the order of `FIGURES`. The stream's high-water mark is the usual one."""
    started = Marks(1)
    with plan.server() as server, server.client() as client, closing(Rig(server, Options())) as rig, quiet_logs():
        with rig.running(registry_of(_counting(started))), _pinging(server) as pings:
            rig.client.schedule_many(specs(1, delay=None))
            _until(lambda: started.cells[0] == 1, "the worker did not begin")
            due = time.time() + LEAD_S + max(2.0, FILL_S * jobs / JOBS)
            fill(client, rig.options.prefix, jobs, first_ms=int(due * 1_000), step_ms=SPREAD_MS / jobs)
            filled = time.time()
            if filled + LEAD_S > due:
                raise RuntimeError(f"to fill the queue took {filled + LEAD_S - due:.1f} s too long")
            rows = rig.scope.keys.of("jobs")
            _until(lambda: not client.hlen(rows), "the queue did not become empty")
            ended = time.time()
        if started.cells[0] != jobs + 1:
            raise RuntimeError(f"{started.cells[0] - 1:,.0f} of {jobs:,} jobs started")
    meanwhile = [took for at, took in pings if due <= at < ended]
    calm = [took for at, took in pings if filled <= at < due]
    return ended - due, statistics.median(meanwhile), _p99(meanwhile), max(meanwhile), _p99(calm)


def _counting(started: Marks) -> Any:
    cells = started.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        cells[0] += 1  # there is one child

    return handler


@contextmanager
def _pinging(server: PrivateServer) -> Iterator[list[tuple[float, float]]]:
    """A process that only pings; when each was sent, and how many ms it took, is there after the block."""
    marks = Marks(2 * PINGS)
    stranger = fork(lambda pipe: _ping(server, marks, pipe), [])
    found: list[tuple[float, float]] = []
    try:
        yield found
    finally:
        stranger.tell()
        stranger.wait()
    taken = marks.taken()
    found += zip(taken[::2], taken[1::2], strict=True)


def _ping(server: PrivateServer, marks: Marks, pipe: int) -> None:
    cells, place = marks.cells, 0
    with server.client() as client:
        client.ping()
        while not is_told(pipe) and place < 2 * PINGS:
            sent, began = time.time(), time.perf_counter()
            client.ping()
            cells[place + 1] = (time.perf_counter() - began) * 1_000
            cells[place] = sent
            place += 2
            time.sleep(EVERY_S)


def _until(seen: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(LOOK_S)


def _p99(figures: list[float]) -> float:
    return statistics.quantiles(figures, n=100)[98]
