"""How a worker is told to stop: once to finish what runs, twice to stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class StopNow(KeyboardInterrupt):
    """Raised into the running handler by the second signal; the job is handed back uncounted.

    A KeyboardInterrupt, because asyncio lets no other exception out of an event loop's callbacks.
    """


class StopSignals:
    """While entered, TERM, INT and QUIT ask for a stop. Only the main thread can listen; elsewhere `ask` is the way.

    A second signal raises `StopNow`, once, and only while `breakable` is set: in a handler, or in a wait. Everywhere
    else the worker is on its way out already, and being torn out of settling would lose what was done.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.breakable = False
        self._broken = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ask(self) -> None:
        """Ask for a stop after the running job."""
        self.asked.set()

    @contextmanager
    def kept_from_threads(self) -> Iterator[None]:
        """Threads started inside never get these signals.

        Python runs its handlers in the main thread, but the system may give a signal to any thread; when it does, a
        main thread that sleeps goes on sleeping. That happens to the second of two signals in quick succession.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set() and self.breakable and not self._broken:
            self._broken = True
            raise StopNow
        self.asked.set()
