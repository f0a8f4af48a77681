"""Children, supervisors and whole workers are killed while they work, and workers restart: no job is lost or early.

Jobs wait in two queues, in pairs that are due together, so that entries of both queues often have the same id.

CHAOS_SEEDS says which runs (default 1,2,3), CHAOS_JOBS and CHAOS_KILLS how large they are.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import redis

from delayq import DelayQ, JobSpec
from delayq.settings.model import load_settings
from tests.support.lines import complete_lines
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

SEEDS: Final = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1,2,3").split(",")]
JOBS: Final = int(os.environ.get("CHAOS_JOBS", "6000"))
KILLS: Final = int(os.environ.get("CHAOS_KILLS", "30"))
LEASE: Final = "1500ms"
SPREAD_MS: Final = 400 * KILLS
QUEUES: Final = ("q", "r")

APP: Final = """
import os, time
from delayq import job

log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("work", queue="q")
def work(number: int) -> None:
    os.write(log, f"{number} {time.time()}\\n".encode())
    time.sleep(0.002 if number % 50 else 0.1)
    os.write(log, f"end {number}\\n".encode())
"""


@dataclass
class Run:
    """One run: a folder, a server, workers, when a process was killed, and how many of each kind."""

    folder: Path
    url: str
    random: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed_at: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    threads: dict[int, int] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start_worker(self, threads: int) -> None:
        words = [
            sys.executable,
            "-m",
            "delayq",
            "work",
            "--app",
            "chaos_app",
            "--queue",
            ",".join(QUEUES),
            "--processes",
            "2",
        ]
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
        self.threads[process.pid] = threads

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed_at.append(time.time())

    def kill_one_child(self) -> None:
        """Kill a child or a sidecar, as soon as there is one."""
        wait_until(self.children, "the start of a child")
        self.kill(self.random.choice(self.children()))
        self.counts["children"] += 1

    def children(self) -> list[int]:
        return [pid for worker in self.workers for pid in children_of(worker.pid)]

    def kill_one_supervisor(self) -> None:
        """Kill a supervisor. Its children are orphans, which end by themselves."""
        worker = self.random.choice(self.workers)
        self.kill(worker.pid)
        worker.wait()
        self.counts["supervisors"] += 1

    def kill_one_worker(self) -> None:
        """Kill a supervisor and all of its children at once, as a machine that fails does."""
        worker = self.random.choice(self.workers)
        for pid in [worker.pid, *children_of(worker.pid)]:
            self.kill(pid)
        worker.wait()
        self.counts["whole workers"] += 1

    def keep_workers(self) -> None:
        """Start again what has ended, as a process manager does."""
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            assert worker.returncode in (0, -signal.SIGKILL)
            self.workers.remove(worker)
            self.start_worker(self.threads[worker.pid])

    def starts(self) -> dict[int, list[float]]:
        """Return when each job was started."""
        found: dict[int, list[float]] = defaultdict(list)
        for line in complete_lines(self.log):
            number, at = line.split()
            if number != "end":
                found[int(number)].append(float(at))
        return found

    def ends(self) -> set[int]:
        """Return the numbers of the jobs whose handlers ended."""
        return {int(line.split()[1]) for line in complete_lines(self.log) if line.startswith("end ")}

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
            kill_all(client, run, kill_at)
            wait_until(lambda: has_ended(client, run), "the end of all jobs", patience=120)
            left = sizes(url)
        finally:
            run.stop()
        starts = run.starts()
        assert sorted(starts) == list(range(JOBS))
        assert run.ends() == set(range(JOBS))
        assert [n for n, due in enumerate(dues) if min(starts[n]) * 1000 < due] == []
        doubles = [times for times in starts.values() if len(times) > 1]
        for times in doubles:
            assert any(min(times) <= killed <= max(times) for killed in run.killed_at)
        counters = sum((Counter(stats.counters) for stats in client.stats()), Counter())
        most = max(len(times) for times in starts.values())
        print(f"seed {seed}: {KILLS} kills and restarts among {JOBS} jobs: {dict(run.counts)}")
        print(f"  0 lost, 0 early, {len(doubles)} started more than once, none more than {most} times; left: {left}")
        print(f"  counters: {dict(counters)}")
        assert counters["failed"] == 0
        assert most <= 4
        assert set(left.values()) == {0}


def schedule_jobs(client: DelayQ, run: Run) -> list[int]:
    """Schedule the jobs, start the workers, and return when each job is due."""
    delays = [f"{run.random.randrange(SPREAD_MS)}ms" for _ in range(JOBS)]
    specs = [JobSpec(name="work", data={"number": n}, queue=QUEUES[n % 2], delay=delays[n // 2]) for n in range(JOBS)]
    run.start_worker(threads=1)
    run.start_worker(threads=4)
    return [ref.due_ms or 0 for ref in client.schedule_many(specs)]


def kill_all(client: DelayQ, run: Run, kill_at: list[float]) -> None:
    """Kill whole workers and supervisors with one kill of ten each, and let all workers restart now and then."""
    started = time.monotonic()
    for number, at in enumerate(kill_at, start=1):
        time.sleep(max(started + at - time.monotonic(), 0))
        run.keep_workers()
        if number % 12 == 0:
            client.restart_workers()
            run.counts["restarts of all workers"] += 1
        elif number % 10 == 0:
            run.kill_one_worker()
        elif number % 10 == 5:
            run.kill_one_supervisor()
        else:
            run.kill_one_child()
    run.keep_workers()


def has_ended(client: DelayQ, run: Run) -> bool:
    """Whether no job is left. Workers that end because the last kill was a restart of all are started again."""
    run.keep_workers()
    return counted(client) == 0


def sizes(url: str) -> dict[str, int]:
    """Count what is left in the places of both queues."""
    found: Counter[str] = Counter()
    with redis.Redis.from_url(url) as server:
        for queue in QUEUES:
            key = f"delayq:{{{queue}}}:"
            found["stream"] += server.xlen(key + "stream")
            for name in ("scheduled", "failed", "completed"):
                found[name] += server.zcard(key + name)
            for name in ("entries", "jobs"):
                found[name] += server.hlen(key + name)
    return dict(found)


def counted(client: DelayQ) -> int:
    return sum(stats.scheduled + stats.ready + stats.reserved + stats.failed for stats in client.stats())
