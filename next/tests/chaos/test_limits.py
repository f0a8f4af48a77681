"""Limits under kills, and a limit with many refused jobs beside plain jobs of the same worker.

CHAOS_SECONDS says how long each run is (default 60), CHAOS_JOBS how many jobs wait behind a limit (default 10,000).
"""

import os
import random
import signal
import statistics
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import redis

from delayq import DelayQ, JobSpec
from tests.support.servers import private_server
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, children_of, end_worker, workers_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SECONDS: Final = float(os.environ.get("CHAOS_SECONDS", "60"))
JOBS: Final = int(os.environ.get("CHAOS_JOBS", "10000"))
WARM_UP: Final = min(10.0, SECONDS / 3)
KILL_EVERY: Final = 2.0
PLAIN_EVERY_MS: Final = 20

APP: Final = """
import os, time
from delayq import Concurrency, JobContext, job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(text: str) -> None:
    os.write(log, f"{text}\\n".encode())

@job("three", timeout="20s", middleware=[Concurrency("three", 3)])
def three(context: JobContext) -> None:
    note(f"+ {context.id} {os.getpid()} {time.time()}")
    time.sleep(0.1)
    note(f"- {context.id} {os.getpid()} {time.time()}")

@job("victim", timeout="1s", middleware=[Concurrency("one", 1)])
def victim() -> None:
    note("victim")
    time.sleep(30)

@job("plain")
def plain(due: float) -> None:
    note(f"p {time.time() - due}")
"""


def test_a_limit_of_three_among_fifty_threads_with_kills(tmp_path: Path) -> None:
    with private_server() as url, DelayQ(url, queue="q") as client:
        client.schedule_many([JobSpec(name="three", id=f"j{n}") for n in range(JOBS)])
        with workers_of(APP, tmp_path, url, DELAYQ_LEASE="2s") as start:
            worker = start("--queue", "q", "--processes", "5", "--threads", "10")
            kills = kill_children(worker.pid, tmp_path / "log")
            most, starts, again = running_at_most(lines(tmp_path / "log"))
            (info,) = client.limits.list()
    print(f"{starts} starts, {again} of them again after one of {kills} kills; most at a time: {most}; {info}")
    assert most == 3
    assert kills and again


def test_the_place_of_a_killed_job_is_free_for_others_in_time(tmp_path: Path) -> None:
    with private_server() as url, DelayQ(url, queue="q") as client, workers_of(APP, tmp_path, url) as start:
        worker = start("--queue", "q")
        client.schedule("victim")
        wait_until(lambda: lines(tmp_path / "log"))
        began = time.monotonic()
        end_worker(worker)
        wait_until(lambda: client.limits.acquire("one", 1, holder="q other", expire_ms=60_000) is not None, patience=20)
        took = time.monotonic() - began
    print(f"free for others {took:.1f} s after the start of a job with a timeout of 1 s")
    assert 10.0 < took <= 11.1


def test_many_jobs_behind_a_limit_beside_plain_jobs(tmp_path: Path) -> None:
    with private_server() as url, DelayQ(url, queue="q") as client, redis.Redis.from_url(url) as server:
        client.schedule_many([JobSpec(name="three", id=f"j{n}") for n in range(JOBS)])
        with workers_of(APP, tmp_path, url) as start:
            granted, refused = measure(client, server, start)
        late = sorted(float(line.split()[1]) * 1000 for line in lines(tmp_path / "log") if line[0] == "p")
    p99 = late[int(len(late) * 0.99)]
    busy = granted * 0.1 / (3 * (SECONDS - WARM_UP))
    print(
        f"places busy {busy:.0%}, {refused / (SECONDS - WARM_UP):,.0f} refusals/s after {WARM_UP:g} s; "
        f"{len(late):,} plain jobs, late p50 {statistics.median(late):.1f} ms, p99 {p99:.1f} ms"
    )
    assert busy >= 0.9
    assert refused <= 1_500 * (SECONDS - WARM_UP)
    assert p99 <= 100.0


def measure(client: DelayQ, server: redis.Redis, start: Start) -> tuple[int, int]:
    """Run a worker, send a plain job every 20 ms, and return the answers of the limit after the warm-up."""
    start("--queue", "plain,q", "--processes", "2", "--threads", "4")
    wait_until(lambda: client.limits.list() != [])
    began, before = time.monotonic(), (0, 0)
    while (passed := time.monotonic() - began) < SECONDS:
        if passed >= WARM_UP and before == (0, 0):
            (info,) = client.limits.list()
            before = info.granted, info.refused
        now = time.time()
        client.schedule_many(
            [
                JobSpec(name="plain", queue="plain", data={"due": now + n / 1000}, delay=f"{n}ms")
                for n in range(500, 1_500, PLAIN_EVERY_MS)
            ]
        )
        time.sleep(max(0.0, began + passed + 1 - time.monotonic()))
    (info,) = client.limits.list()
    return info.granted - before[0], info.refused - before[1]


def kill_children(worker: int, log: Path) -> int:
    """Kill a child every two seconds. A line of the log names each dead process."""
    draw, kills = random.Random(1), 0
    ends_at = time.monotonic() + SECONDS
    wait_until(lambda: lines(log))
    while time.monotonic() < ends_at:
        time.sleep(KILL_EVERY)
        running = {line.split()[2] for line in lines(log)[-20:] if line[0] == "+"}
        alive = [str(pid) for pid in children_of(worker)]
        victims = [pid for pid in alive if pid in running]
        if victims:
            with suppress(ProcessLookupError):
                os.kill(int(draw.choice(victims)), signal.SIGKILL)
                kills += 1
    return kills


def running_at_most(log: list[str]) -> tuple[int, int, int]:
    """Return the most jobs that ran at a time, the number of starts, and the number of repeated starts.

    A job whose process was killed counts as running until its next attempt ends, because nothing else has its place.
    """
    running: set[str] = set()
    starts: Counter[str] = Counter()
    most = 0
    for kind, job, *_ in map(str.split, log):
        if kind == "+":
            running.add(job)
            starts[job] += 1
            most = max(most, len(running))
        else:
            running.discard(job)
    return most, starts.total(), starts.total() - len(starts)
