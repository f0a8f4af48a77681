"""A worker of a queue with several shards, seen from outside."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq import DelayQ, JobSpec
from delayq.core.ids import new_id
from delayq.core.shards import shard_names, shard_number
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, start_fixture

pytestmark = pytest.mark.processes

SHARDS = 8
JOBS = int(os.environ.get("SHARDED_JOBS", "40000"))

APP = """
import os
from delayq import JobContext, job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("note", queue="orders")
def note(context: JobContext) -> None:
    os.write(log, f"{context.id} {context.queue}\\n".encode())

@job("fail", queue="orders", tries=1)
def fail() -> None:
    raise ValueError("no")
"""


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url) as client:
        client.queue_set("orders", shards=SHARDS)
        yield client


start = start_fixture(APP)


def test_two_children_take_the_shards_in_turn(client: DelayQ, start: Start, tmp_path: Path) -> None:
    ids = [new_id() for _ in range(JOBS)]
    client.schedule_many([JobSpec(name="note", id=job_id, queue="orders") for job_id in ids])
    assert start("--processes", "2", "--stop-when-empty").wait(timeout=60) == 0
    ran = [line.split() for line in lines(tmp_path / "log")]
    assert sorted(job_id for job_id, _ in ran) == sorted(ids)
    assert {queue for _, queue in ran} == {"orders"}
    half = Counter(shard_number(job_id, SHARDS) for job_id, _ in ran[: len(ran) // 2])
    mean = len(ran) / 2 / SHARDS
    print(half)
    assert all(abs(count - mean) <= 0.2 * mean for count in half.values()), half


def test_due_jobs_and_failures_of_all_shards(client: DelayQ, start: Start, tmp_path: Path) -> None:
    client.schedule_many([JobSpec(name="note", queue="orders", delay="300ms") for _ in range(50)])
    client.schedule_many([JobSpec(name="fail", queue="orders", delay="300ms") for _ in range(20)])
    start()
    wait_until(lambda: len(lines(tmp_path / "log")) == 50)
    wait_until(lambda: client.stats("orders")[0].failed == 20)
    assert [worker.queues for worker in client.workers()] == [["orders"]]
    log = (tmp_path / "err").read_text()
    assert "queue orders) failed" in log
    assert "#" not in log


def test_a_worker_leaves_when_the_number_changes(client: DelayQ, start: Start, tmp_path: Path) -> None:
    worker = start()
    client.schedule("note", id="first", queue="orders")
    wait_until(lambda: len(lines(tmp_path / "log")) == 1)
    wait_until(lambda: client.get("first", queue="orders") is None)  # else the queue is in use
    assert client.queue_set("orders", shards=3).shards == 3
    assert worker.wait(timeout=30) == 0
    assert (
        "the worker exits, so that its process manager starts it again: the number of shards of queue orders is now 3 "
        "instead of 8" in (tmp_path / "err").read_text()
    )
    client.schedule_many([JobSpec(name="note", queue="orders") for _ in range(30)])
    assert start("--stop-when-empty").wait(timeout=60) == 0
    assert len(lines(tmp_path / "log")) == 31
    assert len(shard_names("orders", 3)) == 3
