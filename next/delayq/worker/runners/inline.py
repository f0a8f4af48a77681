"""Runs plain functions in the main thread, one at a time.

To interrupt a handler, the watchdog sends a signal to the main thread, where the Python signal handler raises an error.
A signal is used because it also ends a sleep or a blocked read, and because Python runs signal handlers only in the
main thread. The signal handler raises only while `_is_armed`, which is True only inside the handler of the job. So an
interruption never hits the next job.
"""

import signal
import threading
from types import FrameType
from typing import Any

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.forking import WAKE_SIGNAL
from delayq.worker.in_flight import JobInFlight
from delayq.worker.runners.runner import End


class InlineRunner:
    """Runs each attempt in `run`, which returns when the attempt has ended."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._current: JobInFlight | None = None
        self._pending: tuple[JobInFlight, JobInterrupted] | None = None
        self._is_armed = False

    def listen(self) -> None:
        """Install the signal handler. Python allows this only in the main thread."""
        signal.signal(WAKE_SIGNAL, self._on_signal)

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Run an attempt to its end."""
        result, error = self._guarded(job, attempt)
        self._end(job, attempt, result, error)

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Raise an error in the handler of this job as soon as Python code runs in the main thread. C code delays this.

        If the job has ended by then, nothing is raised.
        """
        self._pending = (job, error)
        signal.pthread_kill(threading.main_thread().ident or 0, WAKE_SIGNAL)

    def close(self) -> None:
        """Do nothing, because this runner has no thread of its own."""

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        pending = self._pending
        if self._is_armed and pending is not None and pending[0] is self._current:
            self._is_armed = False
            raise pending[1]

    def _guarded(self, job: JobInFlight, attempt: Attempt) -> tuple[Any, BaseException | None]:
        """Return the result or the error of an attempt.

        The blocks are nested, because the interruption may come while an error of the handler is being caught.
        """
        result: Any = None
        error: BaseException | None = None
        self._current = job
        try:
            try:
                try:
                    self._is_armed = True
                    result = attempt.call()
                finally:
                    self._is_armed = False
            except BaseException as raised:
                error = raised
        except BaseException as raised:
            error = raised
        self._current = None
        self._pending = None
        return result, error
