"""promote.lua against a script that does only ZRANGE, HMGET, XADD and ZREM; 500 jobs a call."""

from __future__ import annotations

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import rig_on
from benchmarks.work import raw_jobs, specs

NAME = "promote"
TARGET = Target("≥", 0.8)
FUTURE_MS = 1_900_000_000_000
DUE_MS = 1_890_000_000_000  # as many digits as ours have: Redis formats each score it answers with


def run(plan: Plan) -> Report:
    """Jobs per second moved by one mover that never sleeps."""
    jobs = plan.size(50_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig:
        raw = RawQueue(client)

        def ours_once() -> float:
            rig.clear(client)
            rig.client.schedule_many(wanted)
            return timed(lambda: rig.promote_at(FUTURE_MS))

        def raw_once(*, less: bool = False) -> float:
            raw.reset()
            raw.schedule_many(given, DUE_MS)
            return timed(lambda: raw.promote_all(FUTURE_MS, less=less))

        against = side_by_side(plan, jobs, ours_once, raw_once)
        against_less = side_by_side(plan, jobs, ours_once, lambda: raw_once(less=True))
    return Report(
        [
            compared("promote, batches of 500", *against, TARGET),
            compared("the same, against entries of id and job alone", *against_less, None),
        ]
    )
