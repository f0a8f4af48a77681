"""A worker whose jobs note when they run, and producers that schedule such jobs."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delayq import DelayQ, DelayqError
from delayq.settings.model import load_settings
from tests.support.lines import complete_lines
from tests.support.workers import end_worker

APP: Final = """
import os, time
from delayq import job

log = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("work")
def work(number: int) -> None:
    os.write(log, f"{number} {time.time()}\\n".encode())
"""


class Runs:
    """The runs of jobs that a worker has noted. `pid`: the process id of the worker."""

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        self.pid = pid

    def read(self) -> list[tuple[int, float]]:
        """Return the number of each job that ran, and the time of the run in epoch seconds."""
        if not self._path.exists():
            return []
        return [(int(number), float(at)) for number, at in map(str.split, complete_lines(self._path))]

    def last(self) -> float:
        """Return the time of the last run, or 0."""
        return max((at for _, at in self.read()), default=0.0)

    def latenesses(self, due: dict[int, float]) -> dict[int, float]:
        """Return how many seconds after its due time each job ran for the first time. `due`: the jobs to look at."""
        first: dict[int, float] = {}
        for number, at in self.read():
            first.setdefault(number, at)
        return {number: first[number] - at for number, at in due.items() if number in first}


@contextmanager
def noting_worker(folder: Path, url: str, queues: Sequence[str], *words: str, **environment: str) -> Iterator[Runs]:
    """Run a worker for the block, with a job `work` that notes its number. `words`: more options of the worker."""
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--queue", ",".join(queues)]
    of_worker = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen([*command, *words], cwd=folder, env=of_worker, stderr=log)
    try:
        yield Runs(folder / "runs", worker.pid)
        assert worker.poll() is None
        worker.terminate()
        assert worker.wait(timeout=60) == 0
    finally:
        end_worker(worker)


class Producer(threading.Thread):
    """Schedules jobs with random delays of up to two seconds, one after the other.

    `numbers`: the first number of its jobs, and the step. `every`: seconds between two jobs; after a slow call, the
    next calls catch up. `due`: the due time in seconds of each confirmed job. `errors`: the number of errors of each
    kind. `slowest`: duration of the slowest call, in seconds.
    """

    def __init__(
        self, url: str, queues: Sequence[str], *, numbers: tuple[int, int], every: float, durability: str = "memory"
    ) -> None:
        super().__init__(daemon=True)
        self.queues = queues
        self._first, self._step = numbers
        self._every = every
        self._client = DelayQ(settings=load_settings(url=url, durability=durability))
        self._random = random.Random(self._first)
        self._stopped = threading.Event()
        self.due: dict[int, float] = {}
        self.errors: Counter[str] = Counter()
        self.sent = 0
        self.slowest = 0.0

    def run(self) -> None:
        """Schedule until `stop`."""
        at = time.monotonic()
        while not self._stopped.wait(max(at - time.monotonic(), 0)):
            self._schedule(self._first + self.sent * self._step)
            self.sent += 1
            at += self._every
        self._client.close()

    def _schedule(self, number: int) -> None:
        delay = f"{self._random.randrange(2_000)}ms"
        queue = self._random.choice(self.queues)
        began = time.monotonic()
        try:
            ref = self._client.schedule("work", {"number": number}, id=str(number), queue=queue, delay=delay)
            self.due[number] = (ref.due_ms or 0) / 1000
        except DelayqError as error:
            self.errors[type(error).__name__] += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped.set()
        self.join()


@contextmanager
def scheduling(producers: Sequence[Producer]) -> Iterator[None]:
    """Let producers schedule during the block."""
    for producer in producers:
        producer.start()
    try:
        yield
    finally:
        for producer in producers:
            producer.stop()


def due_of(producers: Sequence[Producer]) -> dict[int, float]:
    """Return the due times of all confirmed jobs."""
    return {number: at for producer in producers for number, at in producer.due.items()}


def errors_of(producers: Sequence[Producer]) -> Counter[str]:
    """Return the number of errors of each kind."""
    return sum((producer.errors for producer in producers), Counter[str]())
