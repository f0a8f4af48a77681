"""Primaries are killed and suspended in turn while jobs are scheduled and run, with Sentinel and on a Cluster.

A job that `schedule` confirmed with `replicas:1` is never lost, and no job is early. FAILOVERS says how many primaries
fail (default 6), and JOBS how many jobs are scheduled meanwhile at least (default 1,000).
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ
from tests.support.noting import Producer, Runs, due_of, errors_of, noting_worker, scheduling
from tests.support.topologies import Server, cluster_group, sentinel_group
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FAILOVERS: Final = int(os.environ.get("FAILOVERS", "6"))
JOBS: Final = int(os.environ.get("JOBS", "1000"))
PRODUCERS: Final = 4
QUEUES: Final = ("q0", "q1", "q2", "q3")
NAMED: Final = {"BackendUnavailable", "OutcomeUnknown", "NotConfirmed", "NodeUnavailable", "NodeOutcomeUnknown"}
NEEDS_REPLICA: Final = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


def fail_over(old: Server, has_new: Callable[[], bool], number: signal.Signals, runs: Runs) -> float:
    """Let a primary fail and come back. Return the seconds from the failover until the next job runs."""
    if number == signal.SIGSTOP:
        old.suspend()
    else:
        old.end()
    wait_until(has_new)
    agreed = time.time()
    wait_until(lambda: runs.last() > agreed)
    waited = runs.last() - agreed
    if number == signal.SIGSTOP:
        os.kill(old.process.pid, signal.SIGCONT)
    else:
        old.start()
    return waited


def check(what: str, producers: list[Producer], runs: Runs, waits: list[float]) -> None:
    due = due_of(producers)
    refusals = errors_of(producers)
    ran = Counter(number for number, _ in runs.read())
    lost = sorted(set(due) - set(ran))
    early = [number for number, at in runs.read() if number in due and at < due[number]]
    twice = sum(count > 1 for count in ran.values())
    sent = sum(producer.sent for producer in producers)
    print(
        f"\n{what}: {FAILOVERS} failovers, {sent} jobs, {len(due)} confirmed, {len(lost)} lost, {len(early)} early, "
        f"{twice} ran more than once; refused: {dict(refusals)}; "
        f"the next job ran {max(waits):.1f} s after a failover at most"
    )
    assert (lost, early) == ([], [])
    assert set(refusals) <= NAMED


def run(what: str, url: str, folder: Path, fail_one: Callable[[int, Runs], float]) -> None:
    producers = [
        Producer(url, QUEUES, numbers=(n, PRODUCERS), every=0.01, durability="replicas:1") for n in range(PRODUCERS)
    ]
    with noting_worker(folder, url, QUEUES, "--processes", "2", DELAYQ_LEASE="3s") as runs:
        with scheduling(producers):
            wait_until(lambda: len(runs.read()) > 100)
            waits = []
            for n in range(FAILOVERS):
                wait_until(lambda n=n: sum(one.sent for one in producers) > n * JOBS / FAILOVERS, patience=60)  # type: ignore[misc]
                waits.append(fail_one(n, runs))
        with DelayQ(url) as client:
            wait_until(lambda: not any(s.scheduled or s.ready or s.reserved for s in client.stats()), patience=60)
    check(what, producers, runs, waits)


SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP)


def test_primaries_with_sentinels_fail(tmp_path: Path) -> None:
    with sentinel_group(options=NEEDS_REPLICA) as group:

        def fail_one(n: int, runs: Runs) -> float:
            wait_until(lambda: group.is_whole(replicas=2), patience=60)  # or writes wait for the last server
            old = group.primary()
            return fail_over(old, lambda: group.primary() is not old and group.agree(), SIGNALS[n % 2], runs)

        run("Sentinel", group.url, tmp_path, fail_one)


def test_primaries_of_a_cluster_fail(tmp_path: Path) -> None:
    with cluster_group() as group:

        def fail_one(n: int, runs: Runs) -> float:
            wait_until(group.is_whole, patience=60)
            queue = QUEUES[n % len(QUEUES)]
            old = group.owner(queue)
            return fail_over(old, lambda: group.owner(queue) is not old, SIGNALS[n % 2], runs)

        run("Cluster", group.url, tmp_path, fail_one)
