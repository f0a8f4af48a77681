"""A worker of the edition that runs this, by its command line, and what its handlers write."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.jobs import PAYLOAD, QUEUE
from delayq import DelayQ

PATIENCE: Final = 120.0
"""Seconds after which a measure gives up."""

NOTES: Final = Path("notes")
LOG: Final = Path("worker.log")


@contextmanager
def running_worker(url: str) -> Iterator[int]:
    """Run a worker of one child for the block, and give its process id.

    Handlers write to NOTES, the worker itself to LOG.
    """
    words = ["work", "--app", "benchmarks.app", "--queue", QUEUE]
    with _running(url, [*words, *os.environ.get("BENCH_WORK_OPTIONS", "").split()]) as process_id:
        yield process_id


@contextmanager
def running_mover(url: str) -> Iterator[int]:
    """Run a mover without a worker for the block, and give its process id."""
    with _running(url, ["move"]) as process_id:
        yield process_id


@contextmanager
def _running(url: str, words: list[str]) -> Iterator[int]:
    NOTES.touch()
    command = [sys.executable, "-m", "delayq", "--url", url, *words]
    with LOG.open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, "BENCH_OUT": str(NOTES)}, stdout=log, stderr=log)
    try:
        yield process.pid
        if process.poll() is not None:
            raise RuntimeError(f"`delayq {words[0]}` ended with {process.returncode}:\n{LOG.read_text()}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def worker_cpu(process_id: int) -> float:
    """Return the seconds of processor time that a process and those below it have used. Only Linux tells; else 0."""
    tasks = Path(f"/proc/{process_id}/task")
    if not tasks.exists():
        return 0.0
    below = (tasks / str(process_id) / "children").read_text().split()
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
    return own / 1e9 + sum(worker_cpu(int(child)) for child in below)


def warm_up(url: str, jobs: int = 20) -> None:
    """Run some jobs, so that a worker is up and knows all scripts; returns when they are done."""
    with DelayQ(url) as client:
        for _ in range(jobs):
            client.schedule("noop", PAYLOAD)
            time.sleep(0.01)
        wait_until(lambda: client.stats(QUEUE)[0].ready + client.stats(QUEUE)[0].reserved == 0)


def wait_until(holds: Callable[[], bool], *, pause: float = 0.05) -> None:
    """Look again and again until something holds; raises TimeoutError, with what the worker said."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing after {PATIENCE:g} s; the worker said:\n{LOG.read_text()}")
        time.sleep(pause)


def notes(count: int) -> list[float]:
    """Wait until handlers have written `count` numbers, and return them."""
    wait_until(lambda: len(_lines()) >= count)
    return [float(line) for line in _lines()]


def _lines() -> list[str]:
    return NOTES.read_text().splitlines()
