"""One worker process with a handler that does nothing, against a bare redis-py loop."""

from __future__ import annotations

import time

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.work import raw_jobs, registry_of, specs

NAME = "consume"
TARGET = Target("≥", 0.5, later=0.7)
FUTURE_MS = 1_900_000_000_000


def run(plan: Plan) -> Report:
    """Jobs per second from the first handler's start (or the first read) until everything is settled."""
    jobs = plan.size(50_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        raw = RawQueue(client)

        def ours_once() -> float:
            rig.clear(client)
            rig.client.schedule_many(wanted)
            rig.promote_at(FUTURE_MS)
            return drain(rig)

        def raw_once() -> float:
            raw.reset()
            raw.schedule_many(given, 1)
            raw.promote_all(FUTURE_MS)
            return timed(raw.consume_all)

        ours, theirs = side_by_side(plan, jobs, ours_once, raw_once)
    return Report([compared("consume, one process, no-op handler", ours, theirs, TARGET)])


def drain(rig: Rig) -> float:
    """Let a worker empty the queue; seconds from the first handler's start to the worker's end."""
    first = 0.0

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        nonlocal first
        if not first:
            first = time.perf_counter()

    worker = rig.worker(registry_of(handler), mover=False, stop_when_empty=True)
    timed(worker.run)
    return time.perf_counter() - first
