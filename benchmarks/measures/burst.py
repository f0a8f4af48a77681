"""20,000 jobs due at one instant: how long until the last of them has started."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import NAME as JOB
from benchmarks.work import QUEUE, payload, registry_of
from delayq.core.spec import JobSpec

NAME = "burst"
JOBS = 20_000
LEAD_S = 2.0
PATIENCE_S = 20.0


def run(plan: Plan) -> Report:
    """Seconds from the due time to the last handler's start, one worker with one child."""
    jobs = plan.size(JOBS)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        took: list[float] = []
        for _ in range(plan.runs):
            took.append(one_run(rig, jobs))
            rig.clear(client)
    return Report([Row(f"{jobs:,} due at one instant, last start", Samples(tuple(took), "s"), target=Target("≤", 0.6))])


def one_run(rig: Rig, jobs: int) -> float:
    """Schedule, wait for the instant, and for the last start."""
    starts = Marks(jobs)
    cells = starts.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        cells[order_id] = time.time()

    with rig.running(registry_of(handler)):
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LEAD_S + 1)
        rig.client.schedule_many([JobSpec(name=JOB, data=payload(n), at=due, queue=QUEUE) for n in range(jobs)])
        starts.wait(LEAD_S + PATIENCE_S)
    return max(starts.taken()) - due.timestamp()
