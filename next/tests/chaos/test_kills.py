"""Children, sidecars and a whole worker are killed while they work: no job is lost, and none starts early.

CHAOS_SEEDS says which runs (default 1,2,3), CHAOS_JOBS and CHAOS_KILLS how large they are.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, JobSpec
from delayq.settings.model import load_settings
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

SEEDS: Final = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1,2,3").split(",")]
JOBS: Final = int(os.environ.get("CHAOS_JOBS", "6000"))
KILLS: Final = int(os.environ.get("CHAOS_KILLS", "30"))
LEASE: Final = "1500ms"
SPREAD_MS: Final = 400 * KILLS

APP: Final = """
import os, time
from delayq import job

log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("work", queue="q")
def work(number: int) -> None:
    os.write(log, f"{number} {time.time()}\\n".encode())
    time.sleep(0.002 if number % 50 else 0.1)
"""


@dataclass
class Run:
    """One run: a folder, a server, two workers, and when something was killed."""

    folder: Path
    url: str
    random: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed_at: list[float] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start_worker(self, threads: int) -> None:
        words = [sys.executable, "-m", "delayq", "work", "--app", "chaos_app", "--processes", "2"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DELAYQ_URL": self.url,
            "DELAYQ_LEASE": LEASE,
            "CHAOS_LOG": str(self.log),
        }
        with (self.folder / "worker.log").open("ab") as output:
            process = subprocess.Popen(
                [*words, "--threads", str(threads)], cwd=self.folder, env=environment, stderr=output
            )
        self.workers.append(process)

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed_at.append(time.time())

    def kill_one_child(self) -> None:
        """Kill a child or a sidecar of a worker that lives."""
        children = [pid for worker in self.workers if worker.poll() is None for pid in children_of(worker.pid)]
        if children:
            self.kill(self.random.choice(children))

    def kill_one_worker(self) -> None:
        worker = self.random.choice([worker for worker in self.workers if worker.poll() is None])
        self.kill(worker.pid)
        worker.wait()

    def starts(self) -> dict[int, list[float]]:
        """Return when each job was started."""
        found: dict[int, list[float]] = defaultdict(list)
        for line in self.log.read_text().splitlines():
            number, at = line.split()
            found[int(number)].append(float(at))
        return found

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=30)


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_is_lost_or_early_whatever_is_killed(seed: int, tmp_path: Path) -> None:
    (tmp_path / "chaos_app.py").write_text(APP)
    with private_server() as url, DelayQ(settings=load_settings(url=url, lease="1500ms")) as client:
        run = Run(tmp_path, url, random.Random(seed))
        try:
            dues = schedule_jobs(client, run)
            kill_at = sorted(run.random.uniform(0.5, SPREAD_MS / 1000) for _ in range(KILLS))
            kill_all(run, kill_at)
            wait_until(lambda: counted(client) == 0, patience=120)
        finally:
            run.stop()
        starts = run.starts()
        assert sorted(starts) == list(range(JOBS))
        assert [n for n, due in enumerate(dues) if min(starts[n]) * 1000 < due] == []
        doubles = [times for times in starts.values() if len(times) > 1]
        for times in doubles:
            assert any(min(times) <= killed <= max(times) for killed in run.killed_at)
        (stats,) = client.stats("q")
        print(f"seed {seed}: {len(run.killed_at)} kills, {len(doubles)} of {JOBS} jobs ran more than once, {stats}")
        assert stats.counters["failed"] == 0


def schedule_jobs(client: DelayQ, run: Run) -> list[int]:
    """Schedule the jobs, start the workers, and return when each job is due."""
    specs = [
        JobSpec(name="work", data={"number": n}, queue="q", delay=f"{run.random.randrange(SPREAD_MS)}ms")
        for n in range(JOBS)
    ]
    run.start_worker(threads=1)
    run.start_worker(threads=4)
    return [ref.due_ms or 0 for ref in client.schedule_many(specs)]


def kill_all(run: Run, kill_at: list[float]) -> None:
    started = time.monotonic()
    for number, at in enumerate(kill_at):
        time.sleep(max(started + at - time.monotonic(), 0))
        if number == len(kill_at) // 2:
            run.kill_one_worker()
            run.start_worker(threads=2)
        else:
            run.kill_one_child()


def counted(client: DelayQ) -> int:
    (stats,) = client.stats("q")
    return stats.scheduled + stats.ready + stats.reserved + stats.failed
