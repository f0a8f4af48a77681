"""The shutdown of a worker: its causes and its steps. This module runs in the supervisor.

A worker shuts down for one of these causes: a signal, an option of the worker (such as a maximum running time), a
request of an operator that all workers restart, a new number of shards of a queue, or logins that Redis has refused for
a minute. The grace period is the time that running jobs then get to finish. The steps of a shutdown are:

    at once                                     children take no new jobs, and hand back jobs that have not started
    during the grace period                     running jobs may finish
    shortly before the end of the grace period  handlers that still run are interrupted; threads cannot be interrupted
    at the end of the grace period              children that still run are killed; CrashRecovery settles their jobs
"""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.display import several
from delayq.core.exit_codes import ExitCode
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import SlotState, Stop

logger: Final = logging.getLogger("delayq.worker")

LAST_MOMENT: Final = 3.0
"""Handlers that still run are interrupted by WorkerShutdown this many seconds before the grace period ends.

If a quarter of the grace period is shorter, they are interrupted at the start of the last quarter.
"""

SECOND_SIGNAL_AFTER: Final = 2.0
"""If the first signal comes again at least this many seconds later, the worker kills its children and exits."""

STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Stopping:
    """The shutdown of one worker. Once it has begun, it is never taken back.

    `last_restart_ms`: time of the last restart request that was made before this worker started, in epoch ms; 0 = none.
    Only a later request stops this worker. `code`: the exit code of the worker.
    """

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
        """True if the worker is shutting down."""
        return self._end_at is not None

    @property
    def leaves_now(self) -> bool:
        """True after a second signal: the worker ends at once, with as few calls as possible."""
        return self.code is ExitCode.INTERRUPTED

    @property
    def is_grace_over(self) -> bool:
        """True if the grace period of running jobs has ended."""
        return self._end_at is not None and self._clock() >= self._end_at

    def on_signal(self, number: int, children: Sequence[ChildProcess]) -> None:
        """React to a signal: USR2 pauses the worker, CONT resumes it, and TERM, INT, QUIT and HUP shut it down."""
        if number == signal.SIGUSR2:
            _pause(children, True)
        elif number == signal.SIGCONT and not self.is_stopping:
            _pause(children, False)
        elif number in STOPS:
            self._on_stop_signal(number, children)

    def step(self, children: Sequence[ChildProcess], now: float) -> None:
        """Begin the shutdown if there is a cause. During a shutdown, send stop orders to the children or kill them."""
        if self._end_at is None:
            why = self._why_stop(children, now)
            if why:
                self.begin(why, children)
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

    def begin(self, why: str, children: Sequence[ChildProcess]) -> None:
        """Begin the shutdown, unless it has begun. `why` is the cause, for the log."""
        if self._end_at is None:
            logger.info("the worker is shutting down: %s; %s", why, self._waits_for(children))
            self._end_at = self._clock() + self._options.grace

    def give_up(self, why: str, children: Sequence[ChildProcess]) -> None:
        """Begin the shutdown because the worker cannot work with its settings. The exit code is then 2."""
        if self._end_at is None:
            self.code = ExitCode.WRONG_USE
        self.begin(why, children)

    def _waits_for(self, children: Sequence[ChildProcess]) -> str:
        """Return words for the log: which jobs the worker waits for, and how long."""
        alive = [child for child in children if child.process_id is not None]
        states = [view.state for child in alive for view in child.slots.read()]
        if SlotState.RUNNING in states:
            return f"running jobs have {self._options.grace:g} s to finish"
        finished = states.count(SlotState.DONE)
        if finished:
            jobs = several(finished, "finished job")
            return f"no job is running, and {jobs} must be reported in {self._options.grace:g} s"
        return "no job is running"

    def _on_stop_signal(self, number: int, children: Sequence[ChildProcess]) -> None:
        now = self._clock()
        if self._first_signal is None:
            self._first_signal = (number, now)
            self.begin(signal.Signals(number).name, children)
        elif number == self._first_signal[0] and now - self._first_signal[1] >= SECOND_SIGNAL_AFTER:
            logger.warning("the worker exits now, because %s came again", signal.Signals(number).name)
            self._end_at = now
            self.code = ExitCode.INTERRUPTED

    def _why_stop(self, children: Sequence[ChildProcess], now: float) -> str:
        """Return the cause of a shutdown as words for the log, or '' if there is none."""
        options = self._options
        if options.max_time is not None and now - self._started_at >= options.max_time:
            return f"it has run for {options.max_time:g} s"
        if options.max_jobs is not None and not any(child.may_run or child.process_id for child in children):
            return f"all its jobs have run ({options.max_jobs})"
        if options.stop_when_empty_for is not None:
            idle = [child.slots.idle_for() for child in children if child.process_id is not None]
            if idle and all(seconds is not None and seconds >= options.stop_when_empty_for for seconds in idle):
                return self._empty(children)
        return self._restart_call(children)

    def _empty(self, children: Sequence[ChildProcess]) -> str:
        """Return the cause of a shutdown without ready jobs. If a queue could not be read, the exit code is 1."""
        if not any(child.slots.has_unread() for child in children):
            return "no job may start now"
        self.code = ExitCode.FAILED
        logger.error(
            "a queue could not be read, so it may have ready jobs; the exit code is 1; to see the error, run "
            "`delayq stats`"
        )
        return "no job may start now in the queues that could be read"

    def _restart_call(self, children: Sequence[ChildProcess]) -> str:
        """Return words for the log if a restart was requested after this worker started; otherwise ''."""
        latest = max((child.slots.restart_ms() for child in children), default=0)
        return "a restart was requested" if latest > self._last_restart_ms else ""


def _pause(children: Sequence[ChildProcess], is_paused: bool) -> None:
    if all(child.slots.is_paused() == is_paused for child in children):
        return
    for child in children:
        child.slots.set_paused(is_paused)
        child.wake()
    logger.info("the worker is paused by a signal; SIGCONT resumes it" if is_paused else "the worker takes jobs again")
