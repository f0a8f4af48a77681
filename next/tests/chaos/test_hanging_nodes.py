"""One of three nodes of a cluster hangs, each in turn: jobs of the other nodes go on. The figures are printed.

HANG_SECONDS says how long each node hangs (default 30).
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from redis.crc import key_slot

from delayq import DelayQ
from tests.support.noting import Producer, Runs, due_of, errors_of, noting_worker, scheduling
from tests.support.topologies import SLOTS, ClusterGroup, Server, cluster_group, hanging_node
from tests.support.waiting import wait_until
from tests.support.workers import children_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

HANGS_FOR: Final = float(os.environ.get("HANG_SECONDS", "30"))
QUEUES: Final = tuple(f"q{n}" for n in range(6))
"""Every primary has some of them."""

MOST_LATE: Final = 2.0
STATS_WITHIN: Final = 7.0
SHARED_KEYS: Final = ("delayq:queues", "delayq:control", "delayq:workers")


@pytest.fixture(scope="module")
def group() -> Iterator[ClusterGroup]:
    with cluster_group() as group:
        yield group


class Command:
    """A command of delayq that was run to its end."""

    def __init__(self, url: str, *words: str) -> None:
        began = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-m", "delayq", "--url", url, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.took = time.monotonic() - began
        self.code = done.returncode
        self.text = done.stdout
        self.errors = done.stderr

    def __str__(self) -> str:
        return f"exit code {self.code} after {self.took:.1f} s"


@pytest.mark.parametrize("number", range(3))
def test_jobs_of_the_other_nodes_are_in_time(number: int, group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole, patience=60)
    owner = group.owner_of_slot(number * SLOTS // 3)
    theirs = [queue for queue in QUEUES if group.owner(queue) is owner]
    others = [queue for queue in QUEUES if group.owner(queue) is not owner]
    shared = [key for key in SHARED_KEYS if group.owner_of_slot(key_slot(key.encode())) is owner]
    producers = [Producer(group.url, [queue], numbers=(n, 10), every=0.2) for n, queue in enumerate(others)]
    with noting_worker(tmp_path, group.url, QUEUES, "--processes", "2") as runs:
        wait_until(lambda: len(children_of(runs.pid)) == 3, "the start of the children")
        with scheduling(producers), DelayQ(group.url) as client:
            for queue in theirs:
                client.schedule("work", {"number": -2}, queue=queue)
            wait_until(lambda: len(runs.read()) >= 20)
            children = children_of(runs.pid)
            client.schedule("work", {"number": -1}, queue=theirs[0], delay="2s")
            began = time.time()
            with hanging_node(group, owner):
                commands = look(group.url, others[0])
                time.sleep(max(began + HANGS_FOR - time.time(), 0))
                ended = time.time()
            wait_until(lambda: -1 in dict(runs.read()), "the run of the job of the node that hung")
            back = dict(runs.read())[-1] - ended
        wait_until(lambda: set(due_of(producers)) <= {n for n, _ in runs.read()}, "the end of all jobs")
        assert children_of(runs.pid) == children
    late = latenesses(runs, producers, began, ended)
    report(f"the node {owner.port} with {[*theirs, *shared]}", producers, late, back)
    check_commands(commands, owner, theirs, others, list_hangs="delayq:queues" in shared)
    assert not errors_of(producers)
    assert len(late) > HANGS_FOR * len(others)
    assert max(late) <= MOST_LATE


def latenesses(runs: Runs, producers: list[Producer], began: float, ended: float) -> list[float]:
    """Return how late the jobs were that became due while the node hung, sorted."""
    due = {number: at for number, at in due_of(producers).items() if began <= at <= ended}
    return sorted(runs.latenesses(due).values())


def report(what: str, producers: list[Producer], late: list[float], back: float) -> None:
    print(f"\n{what} hung for {HANGS_FOR:.0f} s:")
    print(f"  {len(late)} jobs of other nodes: median {late[len(late) // 2] * 1000:.0f} ms late, most {late[-1]:.2f} s")
    slowest = max(producer.slowest for producer in producers)
    print(f"  slowest call of a producer: {slowest:.1f} s; errors: {dict(errors_of(producers))}")
    print(f"  a job of this node ran {back:.1f} s after its return; load {os.getloadavg()[0]:.1f}")


def look(url: str, other: str) -> dict[str, Command]:
    time.sleep(3)  # longer than the cluster needs to notice
    found = {
        "stats": Command(url, "stats"),
        "stats --queue": Command(url, "stats", "--queue", other),
        "workers": Command(url, "workers"),
    }
    for name, command in found.items():
        print(f"\n{name}: {command}\n{command.text}{command.errors}")
    return found


def check_commands(
    commands: dict[str, Command], owner: Server, theirs: list[str], others: list[str], *, list_hangs: bool
) -> None:
    stats, of_one = commands["stats"], commands["stats --queue"]
    assert (of_one.code, of_one.text.count(others[0])) == (0, 1)
    assert stats.took <= STATS_WITHIN
    if list_hangs:
        assert stats.code == 5
        assert f"The list of queues cannot be read. Redis at redis://127.0.0.1:{owner.port}" in stats.errors
        assert "`delayq stats --queue NAME` still works for a queue whose node answers." in stats.errors
        return
    assert stats.code == 1
    rows = stats.text.splitlines()
    assert [row.split()[0] for row in rows if f":{owner.port}" in row] == theirs
    assert [row.split()[0] for row in rows[1:] if f":{owner.port}" not in row] == others
