"""Where handlers run: in the child's main thread, or in threads."""

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from delayq.backends.protocol import Delivery, Settlement
from delayq.worker.in_flight import HeldJob, InFlight

RunJob = Callable[[Delivery], Settlement]
"""Runs one attempt and returns how the job is to be settled."""


class JobExecutor(Protocol):
    """Runs jobs that have been started."""

    def execute(self, job: HeldJob) -> None:
        """Run a job, now or soon, and hand its settlement to InFlight."""
        ...

    def wait(self, timeout: float) -> None:
        """Wait until a job has ended, or for `timeout` seconds."""
        ...

    def close(self) -> None:
        """Stop, when no job runs any more."""
        ...


class InlineExecutor:
    """Runs each job at once, in the thread that calls."""

    def __init__(self, in_flight: InFlight, run_job: RunJob) -> None:
        self._in_flight = in_flight
        self._run_job = run_job

    def execute(self, job: HeldJob) -> None:
        """Run a job; it is finished on return."""
        self._in_flight.finish(job, self._run_job(job.delivery))

    def wait(self, timeout: float) -> None:
        """Return at once: nothing runs between two calls of `execute`."""

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


class ThreadExecutor:
    """Runs jobs in a fixed number of threads."""

    def __init__(self, in_flight: InFlight, run_job: RunJob, *, threads: int) -> None:
        self._in_flight = in_flight
        self._run_job = run_job
        self._jobs: queue.SimpleQueue[HeldJob | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def execute(self, job: HeldJob) -> None:
        """Give a job to the next free thread."""
        self._jobs.put(job)

    def wait(self, timeout: float) -> None:
        """Wait until a job has ended since the last call."""
        self._ended.wait(timeout)
        self._ended.clear()

    def close(self) -> None:
        """Let each thread end."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._in_flight.finish(job, self._run_job(job.delivery))
            self._ended.set()
