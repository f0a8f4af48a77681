"""A thread beside the handlers of a child.

While a handler runs for longer than a batch should, nothing else in the child settles or fetches. The watchdog does
what cannot wait then: it settles what is finished, and hands back what was not started. It also ends the child when its
supervisor has gone, because its leases would not be renewed.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Final

from delayq.worker.in_flight import PREFETCH_SECONDS, InFlight

logger: Final = logging.getLogger("delayq.worker")


class Watchdog:
    """Looks at what is in flight every 20 ms.

    `relieve` is the child's. It takes what it settles from InFlight, under its lock, so that a job is never both
    started and handed back.
    """

    def __init__(self, in_flight: InFlight, relieve: Callable[[], None]) -> None:
        self._in_flight = in_flight
        self._relieve = relieve
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()

    def look(self) -> None:
        """Relieve the child when a handler keeps it from its work."""
        if self._in_flight.runs_longer_than(PREFETCH_SECONDS):
            self._relieve()

    def _run(self) -> None:
        supervisor = os.getppid()
        while not self._stopped.wait(PREFETCH_SECONDS):
            try:
                self.look()
            except Exception:
                logger.exception("the watchdog could not settle; the child tries again")
            if os.getppid() != supervisor:
                os.kill(os.getpid(), signal.SIGTERM)
                return
