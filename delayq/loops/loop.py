"""The loop, written once. A role writes `run_once`, which does one step and returns the seconds to sleep.

Nothing ends a loop but `stop`. A backend that fails is logged (not more than every five seconds), the loop waits a
little longer each time, up to two seconds, and goes on; so it does after an error nobody expected, with a traceback
in the log, because a mover that died silently would look like a queue without work. `last_success` tells a health
check whether it still does its work.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from delayq.loops.pauses import Pauses
from delayq.loops.troubles import Troubles

# A sleep is cut into pieces, so that a loop that is asked to stop ends soon. A role looks at its own times first, so
# an early look costs no request.
LONGEST_SLEEP_S = 0.2


class Role(Protocol):
    """One kind of work, step by step."""

    name: str

    def run_once(self) -> float:
        """Do what is due; the seconds that may pass before the next step. May raise anything."""

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
        self._troubles = Troubles(self._log)
        self._pauses = Pauses()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Go on until `stop`."""
        try:
            while not self._stop.is_set():
                self._step()
        finally:
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

    def _step(self) -> None:
        try:
            pause_s = self.role.run_once()
            if self._pauses.failures:
                self._log.warning("works again after %d failed tries", self._pauses.failures)
            self._pauses.reset()
            self.last_success = time.monotonic()
            if pause_s > 0 and not self._stop.is_set():
                self.role.sleep(min(pause_s, LONGEST_SLEEP_S))
        except Exception as error:  # noqa: BLE001  (see above: a loop goes on, and says why it could not)
            self._troubles.tell(error)
            self._stop.wait(self._pauses.next_s())
