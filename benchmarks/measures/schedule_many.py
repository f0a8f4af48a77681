"""schedule_many against redis-py sending one EVALSHA for each job, 1,000 in a pipeline."""

from __future__ import annotations

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import rig_on
from benchmarks.work import raw_jobs, specs

NAME = "schedule_many"
TARGET = Target("≥", 1.1)
DUE_MS = 1_900_000_000_000


def run(plan: Plan) -> Report:
    """Jobs per second; delayq makes ids and envelopes and checks everything, the bare side sends what it is given."""
    jobs = plan.size(20_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig:
        raw = RawQueue(client)

        def ours_once() -> float:
            rig.clear(client)
            return timed(lambda: rig.client.schedule_many(wanted))

        def raw_once() -> float:
            raw.reset()
            return timed(lambda: raw.schedule_many(given, DUE_MS))

        ours, theirs = side_by_side(plan, jobs, ours_once, raw_once)
    return Report([compared("schedule_many, one call", ours, theirs, TARGET)])
