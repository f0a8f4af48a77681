"""A worker dies with 64 jobs in flight: fresh jobs go on beside their recovery. The figures are printed."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, JobSpec
from delayq.settings.model import load_settings
from tests.chaos.test_kills import Run, counted
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

IN_FLIGHT: Final = 64
FRESH: Final = 3_000

APP: Final = """
import os, time
from delayq import job

log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("fresh", queue="q")
def fresh(number: int) -> None:
    time.sleep(0.004)
    os.write(log, f"{number} {time.time()}\\n".encode())

@job("held", queue="q")
def held(number: int) -> None:
    os.write(log, f"{number} {time.time()}\\n".encode())
    if not os.path.exists("died"):
        time.sleep(1000)
"""


def run_fresh(client: DelayQ, run: Run, first: int) -> float:
    """Run fresh jobs and return how many ended in a second."""
    started = time.time()
    client.schedule_many([JobSpec(name="fresh", data={"number": first + n}, queue="q") for n in range(FRESH)])
    wanted = set(range(first, first + FRESH))
    wait_until(lambda: wanted <= run.starts().keys(), "the end of the fresh jobs", patience=60)
    starts = run.starts()
    return FRESH / (max(starts[number][0] for number in wanted) - started)


def test_fresh_jobs_flow_beside_the_recovery_of_many(tmp_path: Path) -> None:
    (tmp_path / "chaos_app.py").write_text(APP)
    with private_server() as url, DelayQ(settings=load_settings(url=url, lease="1500ms")) as client:
        run = Run(tmp_path, url, random.Random(1))
        try:
            run.start_worker(threads=IN_FLIGHT // 2)
            specs = [JobSpec(name="held", data={"number": n}, queue="q") for n in range(IN_FLIGHT)]
            client.schedule_many(specs)
            wait_until(lambda: run.log.exists() and len(run.starts()) == IN_FLIGHT)
            run.start_worker(threads=4)
            run_fresh(client, run, 10_000)
            alone = run_fresh(client, run, 20_000)
            (tmp_path / "died").touch()
            os.kill(run.workers[0].pid, signal.SIGKILL)
            died_at = time.time()
            beside = run_fresh(client, run, 30_000)
            wait_until(lambda: counted(client) == 0, "the end of all jobs", patience=60)
        finally:
            run.stop()
        restarts = [times[1] - died_at for number, times in run.starts().items() if number < IN_FLIGHT]
        assert len(restarts) == IN_FLIGHT
        assert all(len(times) == 1 for number, times in run.starts().items() if number >= IN_FLIGHT)
        print(f"fresh jobs: {alone:.0f} a second alone, {beside:.0f} beside: {beside / alone:.2f}")
        print(f"recovered jobs start {min(restarts):.1f} to {max(restarts):.1f} s after the death; the lease is 1.5 s")
