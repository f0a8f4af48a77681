"""schedule, one job at a time, against a bare EVALSHA for each."""

from __future__ import annotations

from benchmarks.figures import Report, Target, compared
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import Rig, rig_on
from benchmarks.work import FAR, QUEUE, payload, raw_jobs
from benchmarks.work import NAME as JOB

NAME = "schedule_one"
TARGET = Target("≥", 0.8)
DUE_MS = 1_900_000_000_000


def run(plan: Plan) -> Report:
    """Jobs per second of one producer; each waits for its answer."""
    jobs = plan.size(4_000)
    payloads, given = [payload(n) for n in range(jobs)], raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig:
        raw = RawQueue(client)

        def ours_once() -> float:
            rig.clear(client)
            return timed(lambda: _schedule_each(rig, payloads))

        def raw_once() -> float:
            raw.reset()
            return timed(lambda: _send_each(raw, given))

        ours, theirs = side_by_side(plan, jobs, ours_once, raw_once)
    return Report([compared("schedule, one at a time", ours, theirs, TARGET)])


def _schedule_each(rig: Rig, payloads: list[dict[str, object]]) -> None:
    schedule = rig.client.schedule
    for data in payloads:
        schedule(JOB, data, delay=FAR, queue=QUEUE)


def _send_each(raw: RawQueue, given: list[tuple[str, bytes]]) -> None:
    schedule = raw.schedule_one
    for job_id, envelope in given:
        schedule(job_id, envelope, DUE_MS)
