"""How slow the machine is just now, for a test of what is promised in seconds.

A promise in seconds is one of a machine that has time. On one that serves others, a process waits for its turn at every
step, and that is no fault of the one under test. So the smallest of programs runs beside it, again and again.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE_S = 0.2
STEPS = 3
"""A worker's end is about as much work as three such programs."""


class Pace:
    """What the machine took so far."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._over = threading.Event()

    @property
    def allowance_s(self) -> float:
        """What to allow beyond a promise: a tenth of a second on an idle machine."""
        return STEPS * self._longest_s

    def run(self) -> None:
        """Measure until `stop`."""
        while True:
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            self._longest_s = max(self._longest_s, time.monotonic() - began)
            if self._over.wait(PAUSE_S):
                return

    def stop(self) -> None:
        """No more measuring."""
        self._over.set()


@contextmanager
def pacing() -> Iterator[Pace]:
    """Measures during the block; read it afterwards."""
    pace = Pace()
    thread = threading.Thread(target=pace.run, name="pace")
    thread.start()
    try:
        yield pace
    finally:
        pace.stop()
        thread.join()
