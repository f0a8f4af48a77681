"""An idle worker on a cluster: its requests, and how soon it starts a lone job. The figures are printed.

A request is one round trip to one node, which may have several calls. The servers count the reads of their sockets
(`total_reads_processed` of INFO). The requests of an idle worker are so small that a server reads each of them at once,
and each connection waits for the reply before its next request, so one read is one request. Only the primaries are
asked. Reads of other clients, such as replicas, are counted without a worker first, and are subtracted.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from delayq import DelayQ
from delayq.redis.worker.consumer import OFTEN, OFTEN_FOR, SELDOM
from tests.support.noting import Runs, noting_worker
from tests.support.topologies import ClusterGroup, cluster_group
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

COUNTED_FOR: Final = 30.0
MOST_REQUESTS: Final = 4.0
SOON_MS: Final = 80
LATER_MS: Final = 350
SOON: Final = 60
LATER: Final = 12
WORKERS: Final = 4
"""Number of workers, with a queue each, for jobs that come later. Each job is LATER times alone in its queue."""


@pytest.fixture(scope="module")
def group() -> Iterator[ClusterGroup]:
    with cluster_group() as group:
        yield group


def test_an_idle_worker_sends_few_requests(group: ClusterGroup, tmp_path: Path) -> None:
    others, _ = counted(group)
    with noting_worker(tmp_path, group.url, ["q"]) as runs, DelayQ(group.url) as client:
        start_of_lone_job(client, runs, "q", 0)
        time.sleep(1)
        soon, _ = counted(group, OFTEN_FOR - 2)
        time.sleep(2)
        later, calls = counted(group)
    print(
        f"\nan idle worker: {later - others:.2f} requests a second, and {soon - others:.2f} within {OFTEN_FOR:g} s "
        f"after a job (without a worker: {others:.2f} reads a second); load {os.getloadavg()[0]:.1f}"
    )
    print("  calls a second: " + ", ".join(f"{name} {rate:.2f}" for name, rate in calls.most_common()))
    assert later - others <= MOST_REQUESTS
    assert calls["xreadgroup"] <= 1 / SELDOM + 0.1  # no second read when one wait follows another


def counted(group: ClusterGroup, seconds: float = COUNTED_FOR) -> tuple[float, Counter[str]]:
    """Return the reads and the calls of all primaries in a second. Each INFO of this function is one read."""
    before, began = totals(group), time.monotonic()
    time.sleep(seconds)
    after, took = totals(group), time.monotonic() - began
    reads = (after.pop("reads") - before.pop("reads") - 2 * 3) / took
    return reads, Counter({name: count / took for name, count in (after - before).items()})


def totals(group: ClusterGroup) -> Counter[str]:
    found: Counter[str] = Counter()
    for server in group.servers[:3]:
        stats: Any = server.client.info("stats")
        found["reads"] += stats["total_reads_processed"]
        commands: Any = server.client.info("commandstats")
        for name, about in commands.items():
            found[name.removeprefix("cmdstat_")] += about["calls"]
    return found


def start_of_lone_job(client: DelayQ, runs: Runs, queue: str, number: int) -> float:
    """Schedule one job, and return after how many milliseconds it started."""
    began = time.time()
    client.schedule("work", {"number": number}, queue=queue)
    wait_until(lambda: number in dict(runs.read()))
    return (dict(runs.read())[number] - began) * 1000


def starts_of_lone_jobs(url: str, runs: Runs, queue: str, pauses: Sequence[float]) -> list[float]:
    found = []
    with DelayQ(url) as client:
        start_of_lone_job(client, runs, queue, 0)
        for number, pause in enumerate(pauses, start=1):
            time.sleep(pause)
            found.append(start_of_lone_job(client, runs, queue, number))
    return found


def test_a_lone_job_starts_soon_after_the_last_one(group: ClusterGroup, tmp_path: Path) -> None:
    pauses = spread(0.3, OFTEN, SOON)
    with noting_worker(tmp_path, group.url, ["soon"]) as runs:
        found = starts_of_lone_jobs(group.url, runs, "soon", pauses)
    print_starts(f"a job within {OFTEN_FOR:g} s of the last one", found)
    assert median(found) <= SOON_MS


def test_a_lone_job_starts_later_after_a_long_pause(group: ClusterGroup, tmp_path: Path) -> None:
    queues = [f"later{n}" for n in range(WORKERS)]
    pauses = spread(OFTEN_FOR + SELDOM, SELDOM, LATER)
    with ExitStack() as stack, ThreadPoolExecutor(WORKERS) as pool:
        workers = [stack.enter_context(noting_worker(tmp_path / queue, group.url, [queue])) for queue in queues]
        waiting = [
            pool.submit(starts_of_lone_jobs, group.url, runs, queue, pauses)
            for runs, queue in zip(workers, queues, strict=True)
        ]
        found = [start for one in waiting for start in one.result()]
    print_starts(f"a job later than {OFTEN_FOR:g} s after the last one", found)
    assert median(found) <= LATER_MS


def spread(first: float, width: float, count: int) -> list[float]:
    """Return pauses in random order that cover the time between two looks of a child evenly."""
    pauses = [first + width * n / count for n in range(count)]
    random.Random(count).shuffle(pauses)
    return pauses


def print_starts(what: str, found: list[float]) -> None:
    ordered = sorted(found)
    print(
        f"\n{what} starts after {median(found):.0f} ms (p50), {ordered[int(len(found) * 0.95)]:.0f} ms (p95), "
        f"{ordered[-1]:.0f} ms (most), {len(found)} jobs; load {os.getloadavg()[0]:.1f}"
    )
