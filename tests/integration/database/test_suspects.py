"""A database cannot pass a reserved job to another process: there a child runs a suspect itself, and nothing beside."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from delayq.core.states import State
from delayq.jobs.context import JobContext
from tests.support.database_station import DatabaseStation
from tests.support.waiting import wait_until


def test_a_job_that_kills_its_process_runs_alone_and_fails_beside_threads(tmp_path: Path) -> None:
    with DatabaseStation(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        starts: Any = shop.tape()
        ends: Any = shop.tape()

        def killer(context: JobContext) -> None:
            starts.append((context.id, time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)

        def slow(context: JobContext) -> None:
            starts.append((context.id, time.monotonic()))
            time.sleep(0.5)
            ends.append(context.id)

        shop.handles("killer", killer)
        shop.handles("slow", slow)
        others = [f"s{n}" for n in range(6)]
        for name, job_id in [
            *(("slow", one) for one in others[:3]),
            ("killer", "k"),
            *(("slow", one) for one in others[3:]),
        ]:
            shop.client.schedule(name, id=job_id, queue="orders", delay="0s")
        with shop.working(threads=4):
            shop.until("k", State.FAILED, timeout=40)
            wait_until(lambda: sorted(ends) == others, timeout=30, what="all others have ended once")
        times = {job_id: [at for job, at in starts if job == job_id] for job_id in ("k", *others)}
    assert len(times["k"]) == 4
    assert max(len(times[job_id]) for job_id in others) <= 2
