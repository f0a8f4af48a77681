"""Primaries are killed and suspended in turn while jobs are scheduled and run, with Sentinel and on a Cluster.

A job that `schedule` confirmed with `replicas:1` is never lost, and no job is early. FAILOVERS says how many primaries
fail (default 6).
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, DelayqError
from delayq.settings.model import load_settings
from tests.support.topologies import Server, cluster_group, sentinel_group
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FAILOVERS: Final = int(os.environ.get("FAILOVERS", "6"))
PRODUCERS: Final = 4
QUEUES: Final = ("q0", "q1", "q2", "q3")
NAMED: Final = {"BackendUnavailable", "OutcomeUnknown", "NotConfirmed", "NodeUnavailable", "NodeOutcomeUnknown"}
NEEDS_REPLICA: Final = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")

APP: Final = """
import os, time
from delayq import job

log = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("work")
def work(number: int) -> None:
    os.write(log, f"{number} {time.time()}\\n".encode())
"""


class Producer(threading.Thread):
    """Schedules jobs, one after the other. `first`, `step`: the numbers of its jobs.

    `due`: due time in seconds of each confirmed job. `refusals`: the number of errors of each kind.
    """

    def __init__(self, url: str, first: int, step: int) -> None:
        super().__init__()
        self._step = step
        self._client = DelayQ(settings=load_settings(url=url, durability="replicas:1"))
        self._random = random.Random(first)
        self.due: dict[int, float] = {}
        self.refusals: Counter[str] = Counter()
        self.number = first
        self.sent = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.01):
            self.number += self._step
            self.sent += 1
            delay_ms = self._random.randrange(2_000)
            try:
                ref = self._client.schedule(
                    "work",
                    {"number": self.number},
                    id=str(self.number),
                    queue=self._random.choice(QUEUES),
                    delay=f"{delay_ms}ms",
                )
                self.due[self.number] = (ref.due_ms or 0) / 1000
            except DelayqError as error:
                self.refusals[type(error).__name__] += 1


class Runs:
    """The runs of jobs that a worker has noted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[tuple[int, float]]:
        if not self._path.exists():
            return []
        return [(int(number), float(at)) for number, at in map(str.split, self._path.read_text().splitlines())]

    def last(self) -> float:
        return max((at for _, at in self.read()), default=0.0)


@contextmanager
def working(folder: Path, url: str) -> Iterator[Runs]:
    (folder / "app.py").write_text(APP)
    words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--processes", "2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "DELAYQ_LEASE": "3s"}
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen([*words, "--queue", ",".join(QUEUES)], cwd=folder, env=environment, stderr=log)
    try:
        yield Runs(folder / "runs")
        assert worker.poll() is None
        worker.terminate()
        assert worker.wait(timeout=60) == 0
    finally:
        end_worker(worker)


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
    due = {number: at for producer in producers for number, at in producer.due.items()}
    refusals = sum((producer.refusals for producer in producers), Counter[str]())
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
    producers = [Producer(url, n, PRODUCERS) for n in range(PRODUCERS)]
    with working(folder, url) as runs:
        for producer in producers:
            producer.start()
        try:
            wait_until(lambda: len(runs.read()) > 100)
            waits = [fail_one(n, runs) for n in range(FAILOVERS)]
        finally:
            for producer in producers:
                producer.stopped.set()
            for producer in producers:
                producer.join()
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
