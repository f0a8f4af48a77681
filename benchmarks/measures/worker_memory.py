"""What a worker's processes hold while nothing waits, and while millions of jobs do."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.fill import fill
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import registry_of, specs

NAME = "worker_memory"
WAITING: Final = 5_000_000
WARM: Final = 5_000
"""Jobs it runs first, so that all it needs for its work is there."""
REST_S: Final = 15.0
"""Long enough for its janitor and its mover to have looked at the queue."""
PATIENCE_S: Final = 30.0
TARGET: Final = Target("≤", 5.0)


class Held(NamedTuple):
    """Megabytes of all its processes: `pss` counts a page that several share once, `rss` for each."""

    rss: float
    pss: float


def run(plan: Plan) -> Report:
    """A worker with one child, mover and janitor, on an empty and on a deep queue, in turns.

    It is forked from this process, whose pages count for it too, as long as both use them.
    """
    none, many = list[Held](), list[Held]()
    waiting = plan.size(WAITING)
    with ExitStack() as stack, quiet_logs():
        rigs = []
        for count in (0, waiting):
            server = stack.enter_context(plan.server())
            client = stack.enter_context(server.client())
            rigs.append(stack.enter_context(rig_on(server)))
            fill(client, rigs[-1].options.prefix, count)
        _held(plan, rigs[0])  # unmeasured: this process has grown to its size
        for turn in range(plan.runs):
            sides = list(zip((none, many), rigs, strict=True))
            for found, rig in sides if turn % 2 == 0 else reversed(sides):
                found.append(_held(plan, rig))
    said = f"{waiting:,} wait"
    more = [deep.pss - empty.pss for empty, deep in zip(none, many, strict=True)]
    return Report(
        [
            Row("a worker's memory (PSS), nothing waits", _mb([one.pss for one in none])),
            Row(f"the same, {said}", _mb([one.pss for one in many])),
            Row(f"how much more it is when {said}", _mb(more), target=TARGET),
            Row("a worker's memory (RSS), nothing waits", _mb([one.rss for one in none])),
            Row(f"the same (RSS), {said}", _mb([one.rss for one in many])),
        ]
    )


def _held(plan: Plan, rig: Rig) -> Held:
    """Of a worker that has run some jobs and then rested."""
    jobs = plan.size(WARM)
    starts = Marks(jobs)
    with rig.running(registry_of(_handler(starts))) as worker:
        rig.client.schedule_many(specs(jobs, delay=None))
        starts.wait(PATIENCE_S)
        time.sleep(plan.seconds(REST_S))
        return _tree(worker.pid)


def _handler(starts: Marks) -> Any:
    cells = starts.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        cells[order_id] = time.time()

    return handler


def _tree(pid: int) -> Held:
    """A process and all below it."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {words[0]: int(words[1]) for words in lines}
    rss, pss = kilobytes["Rss:"] * 1_024 / 1_000_000, kilobytes["Pss:"] * 1_024 / 1_000_000
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        below = _tree(int(child))
        rss, pss = rss + below.rss, pss + below.pss
    return Held(rss, pss)


def _mb(values: list[float]) -> Samples:
    return Samples(tuple(values), "MB")
