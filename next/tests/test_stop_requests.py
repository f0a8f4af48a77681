"""A running job that a cancel asked to stop never runs again, however its attempt ends. Real workers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

APP = """
import asyncio, time
from delayq import JobCancelled, JobContext, Retry, Snooze, job

def begin(id):
    with open("started", "a") as file:
        file.write(id + "\\n")

def end(way):
    if way == "retry":
        raise Retry("10ms")
    if way == "snooze":
        raise Snooze("10ms")
    raise ValueError(way)

@job("plain", queue="q", tries=5, backoff="10ms")
def plain(way: str, context: JobContext) -> None:
    begin(context.id)
    try:
        while not context.stopping:
            time.sleep(0.02)
    except JobCancelled:
        if way == "interruption":
            raise ValueError("raised from the interruption")
    end(way)

@job("awaited", queue="q", tries=5, backoff="10ms")
async def awaited(way: str, context: JobContext) -> None:
    begin(context.id)
    try:
        while not context.stopping:
            await asyncio.sleep(0.02)
    except (JobCancelled, asyncio.CancelledError):
        if way == "interruption":
            raise ValueError("raised from the interruption")
    end(way)
"""
WAYS = ("error", "retry", "snooze", "interruption")


@pytest.fixture(params=[1, 8], ids=["inline", "threads"])
def shop(request: pytest.FixtureRequest, url: str, server: redis.Redis, tmp_path: Path) -> Iterator[Path]:
    """The directory of a worker whose children run one job at a time, or eight in threads."""
    (tmp_path / "app.py").write_text(APP)
    words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--threads", str(request.param)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    worker = subprocess.Popen(words, cwd=tmp_path, env=environment)
    yield tmp_path
    end_worker(worker)


@pytest.mark.parametrize("name", ["plain", "awaited"])
def test_a_job_that_was_asked_to_stop_never_runs_again(name: str, shop: Path, url: str) -> None:
    started = shop / "started"
    ids = [f"{name}-{way}" for way in WAYS]
    with DelayQ(url, queue="q") as client:
        for id, way in zip(ids, WAYS, strict=True):
            client.schedule(name, {"way": way}, id=id)
            wait_until(lambda id=id: started.exists() and id in started.read_text())  # type: ignore[misc]
            assert client.cancel(id, running=True) == "running"
            wait_until(lambda id=id: client.get(id) is None)  # type: ignore[misc]
        (stats,) = client.stats("q")
    assert (stats.scheduled, stats.ready, stats.reserved, stats.failed) == (0, 0, 0, 0)
    assert started.read_text().split() == ids
