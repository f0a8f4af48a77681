"""Workers with handlers that do nothing, against a bare redis-py loop: one child, two, and one with async handlers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import raw_jobs, registry_of, specs

NAME = "consume"
ONE = Target("≥", 0.5, later=0.7)
ASYNC = Target("≥", 0.25)
TWO = Target("≥", 1.2)
FUTURE_MS = 1_900_000_000_000


def run(plan: Plan) -> Report:
    """Jobs per second from the first handler's start (or the first read) until everything is settled."""
    jobs = plan.size(50_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        raw = RawQueue(client)

        def ours(kind: Callable[[Marks], Any], processes: int = 1) -> Callable[[], float]:
            def once() -> float:
                rig.clear(client)
                rig.client.schedule_many(wanted)
                rig.promote_at(FUTURE_MS)
                first = Marks(1)
                return rig.drain(registry_of(kind(first)), first, processes=processes)

            return once

        def raw_once() -> float:
            raw.reset()
            raw.schedule_many(given, 1)
            raw.promote_all(FUTURE_MS)
            return timed(raw.consume_all)

        one = side_by_side(plan, jobs, ours(plain), raw_once)
        async_ = side_by_side(plan, jobs, ours(_async), raw_once)
        two = side_by_side(plan, jobs, ours(plain, 2), ours(plain))
    return Report(
        [
            compared("consume, one child, no-op handler", *one, ONE),
            compared("consume, one child, async no-op handler", *async_, ASYNC),
            compared("consume, two children against one", *two, TWO),
        ]
    )


def plain(first: Marks) -> Any:
    """A handler that does nothing but note when it was called first, in whichever process."""
    cells = first.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        if not cells[0]:
            cells[0] = time.perf_counter()

    return handler


def _async(first: Marks) -> Any:
    note_first = plain(first)

    async def handler(order_id: int, customer: str, total: str, note: str) -> None:
        note_first(order_id, customer, total, note)

    return handler
