"""Real workers: one test for each promise about processes. `make test` runs them alone, after the rest."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

APP = """
import os, time
from delayq import job

@job("stamp", queue="q")
def stamp(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{time.time()}\\n")

@job("slow", queue="q")
def slow(path: str, seconds: float) -> None:
    with open(path, "a") as file:
        file.write(f"started {os.getpid()}\\n")
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write("ended\\n")
"""


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url) as client:
        yield client


@pytest.fixture
def worker(url: str, client: DelayQ, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "app.py").write_text(APP)
    words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--queue", "q"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(words, cwd=tmp_path, env=environment) as process:
        yield process
        process.kill()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_runs_when_it_is_due_and_not_before(
    worker: subprocess.Popen[bytes], client: DelayQ, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    refs = [client.schedule("stamp", {"path": str(log)}, delay=f"{n * 300}ms", queue="q") for n in (3, 1, 2)]
    wait_until(lambda: len(lines(log)) == 3)
    dues = sorted(ref.due_ms or 0 for ref in refs)
    assert all(float(ran) * 1000 >= due for ran, due in zip(lines(log), dues, strict=True))


def test_a_killed_child_costs_its_running_job_one_recovery(
    worker: subprocess.Popen[bytes], client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    os.kill(int(lines(log)[0].split()[1]), signal.SIGKILL)
    wait_until(lambda: lines(log)[-1] == "ended")
    assert len(lines(log)) == 3
    assert server.hget("delayq:{q}:meta", "reclaimed_total") == "1"


def test_sigterm_ends_an_idle_worker_at_once(worker: subprocess.Popen[bytes], client: DelayQ, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0}, queue="q")
    wait_until(lambda: len(lines(log)) == 2)
    time.sleep(0.2)
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=5) == 0
    assert time.monotonic() - started < 0.4


def test_sigterm_lets_what_runs_finish(
    worker: subprocess.Popen[bytes], client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=5) == 0
    assert lines(log)[-1] == "ended"
    (stats,) = client.stats("q")
    assert (stats.ready, stats.reserved) == (1, 0)
