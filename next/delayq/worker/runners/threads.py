"""Runs plain functions in a fixed number of threads.

Python cannot raise an exception in another thread at once. So the supervisor kills the whole process if a job still
runs `timeout_grace` (a setting) after its time limit or a cancel, or at the end of the grace period. Before that,
`context.stopping` becomes True, so that the handler can return in time.
"""

import queue
import threading
from typing import Any

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt, CurrentAttempt, current_attempt
from delayq.worker.in_flight import JobInFlight
from delayq.worker.runners.runner import Begin, End


class ThreadRunner:
    """Runs attempts in threads, one attempt at a time in each."""

    def __init__(self, begin: Begin, end: End, *, threads: int) -> None:
        self._begin = begin
        self._end = end
        self._attempts: queue.SimpleQueue[tuple[JobInFlight, Attempt] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Queue an attempt for the next free thread."""
        self._attempts.put((job, attempt))

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Do nothing, because the supervisor kills the process if the handler does not return in time."""

    def close(self) -> None:
        """Let all threads end, and wait for them."""
        for _ in self._threads:
            self._attempts.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (given := self._attempts.get()) is not None:
            job, attempt = given
            result: Any = None
            error: BaseException | None = None
            current = CurrentAttempt(attempt)
            current_attempt.set(current)  # a backoff function, for example, runs in this thread
            attempt.context.run(current_attempt.set, current)
            self._begin(job, attempt)
            try:
                result = attempt.call()
            except BaseException as raised:
                error = raised
            self._end(job, attempt, result, error)
            current_attempt.set(None)
