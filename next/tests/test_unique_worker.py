"""Unique jobs in a real worker, with all three kinds of executors."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQ, Unique
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, children_of, client_fixture, start_fixture

pytestmark = pytest.mark.processes

APP = """
import asyncio, os, time
from delayq import Job, JobContext, Unique, job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
START = Unique(key=["n"], until="start")

def note(text: str) -> None:
    os.write(log, f"{text}\\n".encode())

@job("plain", queue="q", unique=START)
def plain(n: int, seconds: float = 0.0) -> None:
    note(f"plain {n}")
    time.sleep(seconds)

@job("async", queue="q", unique=START)
async def not_blocking(n: int, seconds: float = 0.0) -> None:
    note(f"async {n}")
    await asyncio.sleep(seconds)

@job("done", queue="q", unique=Unique(key=["n"]), tries=1)
def done(n: int, seconds: float = 0.0, fails: bool = False) -> None:
    note(f"done {n}")
    time.sleep(seconds)
    if fails:
        raise ValueError(n)
"""

DONE = Unique(key=["n"])
START = Unique(key=["n"], until="start")


client = client_fixture(queue="q")
start = start_fixture(APP, DELAYQ_LEASE="2s")


@pytest.mark.parametrize(
    ("name", "options"),
    [("plain", []), ("plain", ["--threads", "3"]), ("async", [])],
    ids=["inline", "threads", "loop"],
)
def test_a_key_until_start_is_free_when_the_handler_runs(
    client: DelayQ, start: Start, tmp_path: Path, name: str, options: list[str]
) -> None:
    start(*options)
    first = client.schedule(name, {"n": 1, "seconds": 30.0}, delay="500ms", unique=START)
    assert client.schedule(name, {"n": 1}, unique=START).id == first.id
    wait_until(lambda: lines(tmp_path / "log") == [f"{name} 1"])
    second = client.schedule(name, {"n": 1}, delay="1h", unique=START)
    assert (second.outcome, second.id != first.id) == ("created", True)
    assert client.cancel(first.id, running=True) == "running"
    wait_until(lambda: client.get(first.id) is None)
    assert client.schedule(name, {"n": 1}, unique=START).id == second.id  # the end of the first job frees no other key


@pytest.mark.parametrize("end", ["returns", "fails", "is cancelled", "is killed"])
def test_the_end_of_a_running_job_frees_its_key(client: DelayQ, start: Start, tmp_path: Path, end: str) -> None:
    worker = start()
    data: dict[str, Any] = {"n": 1, "seconds": 0.5 if end in ("returns", "fails") else 30.0, "fails": end == "fails"}
    owner = client.schedule("done", data, unique=DONE)
    wait_until(lambda: lines(tmp_path / "log") == ["done 1"])
    assert client.schedule("done", {"n": 1}, unique=DONE).id == owner.id
    if end == "is cancelled":
        client.cancel(owner.id, running=True)
    elif end == "is killed":
        for _ in range(4):  # the fourth vanish fails the job
            count = len(lines(tmp_path / "log"))
            wait_until(lambda: running_in(client, owner.id) is not None)
            os.kill(running_in(client, owner.id) or 0, signal.SIGKILL)
            wait_until(lambda: len(lines(tmp_path / "log")) > count or state(client, owner.id) == "failed")  # noqa: B023
    wait_until(lambda: state(client, owner.id) in ("", "failed"))
    assert client.schedule("done", {"n": 1}, delay="1h", unique=DONE).outcome == "created"
    assert children_of(worker.pid)


def state(client: DelayQ, job_id: str) -> str:
    job = client.get(job_id)
    return "" if job is None else job.state


def running_in(client: DelayQ, job_id: str) -> int | None:
    """Return the process that runs a job, as the list of workers has it."""
    for worker in client.workers():
        if [row for row in worker.about["running"] if row["id"] == job_id]:
            return int(worker.about["pid"])
    return None
