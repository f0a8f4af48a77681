"""Handlers in a fixed number of threads.

A thread cannot be made to raise, so a job that does not end when it should is ended by the supervisor, together with
the process; the handler sees it coming by `context.stopping`.
"""

import queue
import threading
from typing import Any

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import JobInFlight
from delayq.worker.runners.runner import Begin, End


class ThreadRunner:
    """Runs attempts in threads, as many at once as there are threads."""

    def __init__(self, begin: Begin, end: End, *, threads: int) -> None:
        self._begin = begin
        self._end = end
        self._attempts: queue.SimpleQueue[tuple[JobInFlight, Attempt] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Give an attempt to the next free thread."""
        self._attempts.put((job, attempt))

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Do nothing: the supervisor ends the process."""

    def close(self) -> None:
        """Let each thread end."""
        for _ in self._threads:
            self._attempts.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (given := self._attempts.get()) is not None:
            job, attempt = given
            result: Any = None
            error: BaseException | None = None
            self._begin(job, attempt)
            try:
                result = attempt.call()
            except BaseException as raised:
                error = raised
            self._end(job, attempt, result, error)
