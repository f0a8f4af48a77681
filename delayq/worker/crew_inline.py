"""One handler at a time, in the main thread: the crew with the strongest timeouts.

The watchdog interrupts through a signal, because a signal also ends a sleep or a blocked read, and
because only the main thread can be made to raise at once. The exception is raised while `armed`, which
is true inside the handler and nowhere else, at most once for the soft end and once more for TERM.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable
from typing import Any

from delayq.core.outcome import DONE, GiveUp
from delayq.jobs.failing import tell_failed
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.coroutines import Coroutines
from delayq.worker.held import Held
from delayq.worker.holding import Holding

# Ignored by default and used by nobody: a handler may have its own plans with ALRM, USR1 and USR2.
NUDGE = signal.SIGURG


def nudge() -> None:
    """Send the signal to the main thread, wherever it is: one sent to the process might wake another thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, NUDGE)


class Inline:
    """Runs each attempt to its end in `start`. `settle` is called when an outcome found no room."""

    def __init__(self, holding: Holding, attempts: Attempts, settle: Callable[[], None]) -> None:
        self._holding = holding
        self._attempts = attempts
        self._settle = settle
        self._current: Held | None = None
        self._pending: tuple[Held, BaseException] | None = None
        self._armed = False
        self._inside = False
        self._coroutines = Coroutines()  # for a plain function that answers with a coroutine

    def room(self) -> int:
        """Always one: it is asked only between two attempts."""
        return 1

    def start(self, held: Held, attempt: Attempt) -> None:
        """Run it."""
        result, error = self._guarded(held, attempt)
        outcome = self._attempts.conclude(attempt, result, error)
        if outcome is not DONE and isinstance(outcome, GiveUp):
            tell_failed(attempt.handler, attempt.envelope, outcome, self._coroutines.run)
        if not self._holding.finish(held, outcome):
            self._settle()

    def flush(self) -> None:
        """Nothing is ever kept."""

    def interrupt(self, held: Held, error: BaseException) -> None:
        """Raise in the main thread, when it comes back to the interpreter."""
        held.interrupt = error
        self._pending = (held, error)
        nudge()

    def nudged(self) -> None:
        """From the signal's handler, in the main thread; a nudge that comes too late finds nothing to do."""
        pending = self._pending
        if self._armed and pending is not None and pending[0] is self._current:
            self._pending, self._armed = None, False
            raise pending[1]

    def terminated(self) -> None:
        """TERM, which the supervisor sends when the handler did not end: it hears the same once more.

        Anybody else's TERM does nothing: a handler that was told nothing yet is none to be ended.
        """
        current = self._current
        if self._inside and current is not None and current.interrupt is not None:
            self._inside = self._armed = False
            raise current.interrupt

    def close(self) -> None:
        """End what a handler may have left on a loop."""
        self._coroutines.close()

    def _guarded(self, held: Held, attempt: Attempt) -> tuple[Any, BaseException | None]:
        """The result or the error. Two interruptions may come, each while the other one is being caught."""
        result: Any = None
        error: BaseException | None = None
        self._current = held
        try:
            try:
                try:
                    self._inside = self._armed = True
                    result = attempt.call()
                    if result is not None and inspect.isawaitable(result):
                        result = self._coroutines.run(result)
                finally:
                    self._armed = False
                    self._inside = False
            except BaseException as raised:  # noqa: BLE001  (a handler may raise anything; it costs an attempt, not the worker)
                error = raised
        except BaseException as raised:  # noqa: BLE001
            error = raised
        self._current = None
        return result, error
