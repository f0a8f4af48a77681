"""One handler at a time, in the main thread: the runner with the strongest interruptions.

An interruption is a signal, because a signal also ends a sleep or a blocked read, and because only the main thread can
be made to raise at once. It is raised while `_is_armed`, which holds inside the handler and nowhere else; so it never
hits the job behind.
"""

import signal
import threading
from types import FrameType
from typing import Any

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import JobInFlight
from delayq.worker.processes import WAKE_SIGNAL
from delayq.worker.runners.runner import End


class InlineRunner:
    """Runs each attempt to its end in `run`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._current: JobInFlight | None = None
        self._pending: tuple[JobInFlight, JobInterrupted] | None = None
        self._is_armed = False
        self._may_raise_again = False

    def listen(self) -> None:
        """Take the signal; only the main thread of a process can."""
        signal.signal(WAKE_SIGNAL, self._on_signal)

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Run an attempt; it has ended on return."""
        result, error = self._guarded(job, attempt)
        self._end(job, attempt, result, error)

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Raise an error in the main thread, as soon as it is in the interpreter."""
        self._pending = (job, error)
        signal.pthread_kill(threading.main_thread().ident or 0, WAKE_SIGNAL)

    def raise_again(self) -> None:
        """Raise the interruption once more, from a signal handler: the first one was caught and did not end the job."""
        pending = self._pending
        if self._may_raise_again and pending is not None and pending[0] is self._current:
            self._may_raise_again = False
            raise pending[1]

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        pending = self._pending
        if self._is_armed and pending is not None and pending[0] is self._current:
            self._is_armed = False
            self._may_raise_again = True
            raise pending[1]

    def _guarded(self, job: JobInFlight, attempt: Attempt) -> tuple[Any, BaseException | None]:
        """Return the result or the error. Two interruptions may come, each while the other one is being caught."""
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
                    self._may_raise_again = False
            except BaseException as raised:
                error = raised
        except BaseException as raised:
            error = raised
        self._current = None
        self._pending = None
        return result, error
