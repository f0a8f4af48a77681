"""The loop, written once. A role writes `run_once`, which does one step and returns the seconds to sleep.

A backend that fails does not end a loop: the error is logged (not more than every five seconds),
the loop waits a little longer each time, up to two seconds, and goes on. `last_success` tells a
health check whether it still does its work.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from delayq.core.errors import BackendError
from delayq.loops.log_limit import LogLimit

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Role(Protocol):
    """One kind of work, step by step."""

    name: str

    def run_once(self) -> float:
        """Do one step; the seconds that may pass before the next. May raise `BackendError`."""

    def sleep(self, seconds: float) -> None:
        """Wait, at most that long; shorter when there is a reason to look again."""

    def close(self) -> None:
        """Give back what was opened."""


class Loop:
    """Runs a role until it is stopped, in this thread (`run`) or in one of its own (`start`)."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.last_success = float("-inf")
        self._stop = threading.Event()
        self._log = logging.getLogger(f"delayq.{role.name}")
        self._limit = LogLimit()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Go on until `stop`."""
        failures = 0
        while not self._stop.is_set():
            try:
                pause = self.role.run_once()
            except BackendError as error:
                failures += 1
                self._report(error)
                self._stop.wait(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 10)))
                continue
            if failures:
                self._log.warning("the backend answers again after %d failed tries", failures)
            failures, self.last_success = 0, time.monotonic()
            if pause > 0 and not self._stop.is_set():
                self.role.sleep(pause)
        self.role.close()

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name=f"delayq-{self.role.name}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ask the loop to end and wait for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def ask_to_stop(self) -> None:
        """Ask the loop to end; may be called from a signal handler."""
        self._stop.set()

    def _report(self, error: BackendError) -> None:
        if hidden := self._limit.may_log(type(error).__name__):
            more = f" (and {hidden - 1} more like it)" if hidden > 1 else ""
            self._log.warning("%s%s", error, more)
