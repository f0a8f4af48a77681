"""Workers that do nothing, against a bare redis-py loop: functions, a `Job` class, async ones, two children."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import NAME as JOB_NAME
from benchmarks.work import raw_jobs, registry_of, specs
from delayq.jobs.job import Job
from delayq.jobs.registry import Registry, using

NAME = "consume"
ONE = Target("≥", 0.7)
CLASS = Target("≥", 0.45)
ASYNC = Target("≥", 0.35)
TWO = Target("≥", 1.3)
FUTURE_MS = 1_900_000_000_000


def run(plan: Plan) -> Report:
    """Jobs per second from the first handler's start (or the first read) until everything is settled."""
    jobs = plan.size(50_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        raw = RawQueue(client)

        def ours(kind: Callable[[Marks], Registry], processes: int = 1) -> Callable[[], float]:
            def once() -> float:
                rig.clear(client)
                rig.client.schedule_many(wanted)
                rig.promote_at(FUTURE_MS)
                first = Marks(1)
                return rig.drain(kind(first), first, processes=processes)

            return once

        def raw_once() -> float:
            raw.reset()
            raw.schedule_many(given, 1)
            raw.promote_all(FUTURE_MS)
            return timed(raw.consume_all)

        one = side_by_side(plan, jobs, ours(plain), raw_once)
        class_ = side_by_side(plan, jobs, ours(_class), raw_once)
        async_ = side_by_side(plan, jobs, ours(_async), raw_once)
        two = side_by_side(plan, jobs, ours(plain, 2), ours(plain))
    return Report(
        [
            compared("consume, one child, no-op handler", *one, ONE),
            compared("consume, one child, no-op Job class", *class_, CLASS),
            compared("consume, one child, async no-op handler", *async_, ASYNC),
            compared("consume, two children against one", *two, TWO),
        ]
    )


def plain(first: Marks) -> Registry:
    """A handler that does nothing but note when it was called first, in whichever process."""
    return registry_of(_noting(first))


def _class(first: Marks) -> Registry:
    """The same as a class: its fields are read into an instance, whose `handle` is called."""
    cells, registry = first.cells, Registry()
    with using(registry):

        class CloseOrder(Job, name=JOB_NAME):
            order_id: int
            customer: str
            total: str
            note: str

            def handle(self) -> None:
                if not cells[0]:
                    cells[0] = time.perf_counter()

    return registry


def _async(first: Marks) -> Registry:
    note_first = _noting(first)

    async def handler(order_id: int, customer: str, total: str, note: str) -> None:
        note_first(order_id, customer, total, note)

    return registry_of(handler)


def _noting(first: Marks) -> Callable[[int, str, str, str], None]:
    cells = first.cells

    def handler(order_id: int, customer: str, total: str, note: str) -> None:
        if not cells[0]:
            cells[0] = time.perf_counter()

    return handler
