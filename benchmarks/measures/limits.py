"""Seven places for fifty workers' worth of jobs of 100 ms: how near the throughput comes to the limit."""

from __future__ import annotations

import asyncio
import time

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import NAME as JOB
from benchmarks.work import QUEUE
from delayq.core.spec import JobSpec
from delayq.jobs.function import job
from delayq.jobs.middleware.concurrency import Concurrency
from delayq.jobs.registry import Registry, using

NAME = "limits"
JOBS, PLACES, JOB_S = 420, 7, 0.1
PATIENCE_S = 60.0


def run(plan: Plan) -> Report:
    """Jobs a second as a share of what the limit allows, and the most that ran at once."""
    jobs = plan.size(JOBS)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        shares: list[float] = []
        most: list[float] = []
        for _ in range(min(plan.runs, 3)):
            began, ended = one_run(rig, jobs)
            shares.append((jobs - 1) / (max(began) - min(began)) / (PLACES / JOB_S))
            most.append(at_once(began, ended))
            rig.clear(client)
    what = f"{PLACES} places, 50 workers' worth of jobs of {JOB_S * 1000:.0f} ms"
    rows = [
        Row(f"{what}: of the limit's throughput", Samples(tuple(shares), "×"), target=Target("≥", 0.8)),
        Row(f"{what}: most at once", Samples(tuple(most), "jobs"), target=Target("≤", PLACES)),
    ]
    return Report(rows)


def one_run(rig: Rig, jobs: int) -> tuple[list[float], list[float]]:
    """When each job began and ended. No job comes back by itself: whoever waits must be woken."""
    began, ended = Marks(jobs), Marks(jobs)
    registry = Registry()
    with using(registry):

        @job(JOB, middleware=[Concurrency("bench", PLACES, release_after="1h")])
        async def handler(number: int) -> None:
            began.cells[number] = time.perf_counter()
            await asyncio.sleep(JOB_S)
            ended.cells[number] = time.perf_counter()

    rig.client.schedule_many([JobSpec(name=JOB, data={"number": n}, queue=QUEUE) for n in range(jobs)])
    with rig.running(registry, processes=2, concurrency=25):
        ended.wait(PATIENCE_S)
    return began.taken(), ended.taken()


def at_once(began: list[float], ended: list[float]) -> int:
    """The most that ran at one time."""
    running = most = 0
    for _, step in sorted([*((at, 1) for at in began), *((at, -1) for at in ended)]):
        running += step
        most = max(most, running)
    return most
