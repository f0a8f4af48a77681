"""The supervisor: the parent process of a worker. It forks children, which run the jobs, and runs no handler itself.

The supervisor renews the leases of the children's jobs, kills children whose jobs overrun, and settles the jobs of dead
children. It also runs the sidecar (see sidecar.py). The loop of the supervisor is a list of steps. If a step fails, the
failure is logged with the name of the step, and the other steps still run.
"""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from delayq.core.outages import Outages
from delayq.worker.children import ChildProcess, Children
from delayq.worker.forking import WATCHED, reap, wait_for_signal, without_effect
from delayq.worker.sidecar import Sidecar
from delayq.worker.stopping import Stopping

logger: Final = logging.getLogger("delayq.worker")

TICK: Final = 0.25
"""Longest pause between two turns of the loop, in seconds."""

SUSPENDED_AFTER: Final = 1.0
"""If a turn starts more than this many seconds late, the whole worker was suspended, for example by SIGSTOP.

The time limits of all running jobs are then extended by the delay, because the handlers did not run either. After a
step that took too long (see LONGEST_STEP), the time limits are extended by the whole duration of the step. The grace
period is not extended.
"""

LONGEST_STEP: Final = 2.0
"""Longest time in seconds that a step normally takes while the backend does not answer.

If a step takes more than LONGEST_STEP + SUSPENDED_AFTER, the worker was suspended during the step, or a name server did
not answer. The supervisor cannot tell these cases apart, so it extends the time limits in both.
"""


class Role(Protocol):
    """One task that the supervisor performs for its children on every turn."""

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Do everything that is due. Return True if anything was due. `now` is a time of the supervisor's clock."""
        ...


class Supervisor:
    """Keeps a worker running until it has to stop.

    `alive`: the roles for running children, in the order of their steps. `ended`: the role that settles the jobs of
    dead children. `tick`: longest pause between two turns, in seconds.
    """

    def __init__(
        self,
        children: Children,
        sidecar: Sidecar,
        stopping: Stopping,
        *,
        alive: Sequence[Role],
        ended: Role,
        tick: float = TICK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children = children
        self._sidecar = sidecar
        self._stopping = stopping
        self._alive = alive
        self._ended = ended
        self._tick = tick
        self._clock = clock
        self._outages = Outages()

    def run(self) -> int:
        """Run turns until the worker is shutting down and its children have ended. Return the exit code."""
        if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGUSR1, without_effect)  # by default, it would end the worker without a log line
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        while True:
            self.turn()
            if self._has_ended():
                break
            self._wait()
        self._sidecar.stop()
        if self._settle_dead():
            # With no children left, Heartbeat removes this worker from the list of live workers. During an outage,
            # this is left out, and the entry expires.
            self._step_alive([])
            if not self._stopping.leaves_now:
                self._sidecar.wait()
        return self._stopping.code

    def turn(self) -> None:
        """Run one turn: reap dead processes, settle the jobs of dead children, fork new children, and step each role.

        After a second signal, and at the end of the grace period, only kill the children. A call to a backend that does
        not answer would delay this.
        """
        self._try("reap", self._reap)
        if self._has_ended():
            return
        if self._stopping.leaves_now or self._stopping.is_grace_over:
            self._try("stop", lambda: self._stopping.step(self._children.all, self._clock()))
            return
        self._settle_dead()
        if not self._stopping.is_stopping:
            self._try("fork", self._fork)
        self._step_alive(self._children.running())

    def _has_ended(self) -> bool:
        """Return True if the worker is shutting down and no child is left."""
        return self._stopping.is_stopping and not self._children.running()

    def _settle_dead(self) -> bool:
        return self._try("settle jobs of dead children", lambda: self._ended.step(self._children.all, self._clock()))

    def _step_alive(self, children: Sequence[ChildProcess]) -> None:
        """Step each role. After each step, let `Stopping` begin or continue the shutdown, if there is a cause.

        The end of the turn would be too late for this, because a step takes long if Redis does not answer. If the grace
        period is over, skip the other roles, because the children have just been killed.
        """
        for role in self._alive:
            self._try(type(role).__name__, partial(role.step, children, self._clock()))
            self._try("stop", lambda: self._stopping.step(self._children.all, self._clock()))
            if children and self._stopping.is_grace_over:
                return

    def _reap(self) -> None:
        for process_id, code in reap():
            if not self._children.ended(process_id, code):
                self._sidecar.ended(process_id, code)

    def _fork(self) -> None:
        self._sidecar.spawn()
        self._children.spawn()

    def _wait(self) -> None:
        """Sleep for a tick, or until a signal comes. If the sleep took much longer, extend the time limits of jobs."""
        started = self._clock()
        number = wait_for_signal(self._tick)
        self._note_suspension(self._clock() - started - self._tick, "the worker was suspended for")
        for child in self._children.all:
            child.slots.count_turn()
        if number is not None:
            self._stopping.on_signal(number, self._children.all)

    def _note_suspension(self, late: float, cause: str) -> None:
        """Extend the time limits of jobs by a delay in seconds, if the delay is longer than SUSPENDED_AFTER.

        `cause`: the beginning of the log line, before the number of seconds.
        """
        if late > SUSPENDED_AFTER:
            logger.warning("%s %.1f s; the time limits of running jobs were extended by that much", cause, late)
            for child in self._children.all:
                child.slots.extend_deadlines(late)

    def _try(self, name: str, step: Callable[[], object]) -> bool:
        """Run a step, log its failure, and return True if it did not fail.

        If the step itself returns False, it had nothing to do. `_try` then returns True too, but a logged outage stays
        open.
        """
        started = self._clock()
        try:
            result = step()
        except Exception as error:
            self._outages.tell(f"the step {name!r} of the supervisor failed", error)
            return False
        finally:
            took = self._clock() - started
            if took > LONGEST_STEP + SUSPENDED_AFTER:
                self._note_suspension(took, f"the step {name!r} of the supervisor took")
        if result is not False:
            self._outages.is_over(f"the step {name!r} of the supervisor failed")
        return True
