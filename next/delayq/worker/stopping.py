"""How a worker stops: by signals, by its own limits, by a call to restart; and how long running jobs may go on."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.exit_codes import ExitCode
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import Stop

logger: Final = logging.getLogger("delayq.worker")

LAST_MOMENT: Final = 3.0
"""Seconds before the end of the grace at which WorkerShutdown is raised in what runs; at most a quarter of it."""

IMPATIENCE: Final = 2.0
"""The same signal again, so many seconds after the first, means: leave now."""

STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Stopping:
    """Whether, why and how far a worker is on its way out. An order to stop is never taken back."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        last_restart_ms: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._started_at = clock()
        self._first_signal: tuple[int, float] | None = None
        self._end_at: float | None = None
        self._last_restart_ms = last_restart_ms
        self.code = ExitCode.OK

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is on its way out."""
        return self._end_at is not None

    @property
    def is_grace_over(self) -> bool:
        """Whether running jobs have had their time."""
        return self._end_at is not None and self._clock() >= self._end_at

    def heed(self, number: int, children: Sequence[ChildProcess]) -> None:
        """Act on a signal."""
        if number == signal.SIGUSR2:
            _pause(children, True)
        elif number == signal.SIGCONT and not self.is_stopping:
            _pause(children, False)
        elif number in STOPS:
            self._heed_stop(number, children)

    def step(self, children: Sequence[ChildProcess], now: float) -> None:
        """Begin to stop when a limit is reached; end running jobs when the grace is over."""
        if self._end_at is None:
            why = self._why_stop(children, now)
            if why:
                self.begin(why)
        if self._end_at is None:
            return
        for child in children:
            if child.slots.stop_order() is Stop.NO:
                child.order(Stop.DRAIN)
            is_last_moment = now >= self._end_at - min(LAST_MOMENT, self._options.grace / 4)
            if is_last_moment and child.slots.stop_order() is not Stop.INTERRUPT:
                child.order(Stop.INTERRUPT)
            if now >= self._end_at:
                child.kill(Ending.SHUTDOWN, set())

    def begin(self, why: str) -> None:
        """Stop: start nothing new, and give running jobs the grace to end."""
        if self._end_at is None:
            logger.info("the worker stops: %s; running jobs have %g s to end", why, self._options.grace)
            self._end_at = self._clock() + self._options.grace

    def _heed_stop(self, number: int, children: Sequence[ChildProcess]) -> None:
        now = self._clock()
        if self._first_signal is None:
            self._first_signal = (number, now)
            self.begin(signal.Signals(number).name)
        elif number == self._first_signal[0] and now - self._first_signal[1] >= IMPATIENCE:
            logger.warning("a second %s: the worker leaves now", signal.Signals(number).name)
            self._end_at = now
            self.code = ExitCode.INTERRUPTED

    def _why_stop(self, children: Sequence[ChildProcess], now: float) -> str:
        """Return the limit that is reached, as words for the log; '' = none."""
        options = self._options
        if options.max_time is not None and now - self._started_at >= options.max_time:
            return f"it has run for {options.max_time:g} s"
        if options.max_jobs is not None and not any(child.may_run or child.process_id for child in children):
            return f"all its jobs have run ({options.max_jobs})"
        if options.stop_when_empty_for is not None:
            idle = [child.slots.idle_for() for child in children if child.process_id is not None]
            if idle and all(seconds is not None and seconds >= options.stop_when_empty_for for seconds in idle):
                return "no job is ready"
        return self._restart_call(children)

    def _restart_call(self, children: Sequence[ChildProcess]) -> str:
        """Return words for the log when all workers were asked to restart since this one began; otherwise ''."""
        latest = max((child.slots.restart_ms() for child in children), default=0)
        return "all workers were asked to restart" if latest > self._last_restart_ms else ""


def _pause(children: Sequence[ChildProcess], is_paused: bool) -> None:
    for child in children:
        child.slots.set_paused(is_paused)
        child.wake()
    logger.info("the worker is paused by a signal" if is_paused else "the worker goes on")
