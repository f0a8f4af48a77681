"""The supervisor: a parent that runs no handler, forks children, keeps their leases, ends and settles for them.

Its loop is a list of steps. A step that fails is logged by name, and does not stop the others.
"""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from delayq.core.outages import Outages
from delayq.worker.children import ChildProcess, Children
from delayq.worker.processes import WATCHED, reap, wait_for_signal
from delayq.worker.sidecar import Sidecar
from delayq.worker.stopping import Stopping

logger: Final = logging.getLogger("delayq.worker")

TICK: Final = 0.25
STANDSTILL: Final = 1.0
"""When a turn comes later than planned by more than this, the whole worker stood still, and deadlines move by that."""


class Role(Protocol):
    """One thing that the supervisor does for its children, every turn."""

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Do what is due. Return whether anything was."""
        ...


class Supervisor:
    """Keeps a worker running until it is to stop. `roles` are stepped in their order."""

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
        """Work until the worker is to stop and its children have ended. Return the exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        while True:
            self.turn()
            if self._has_ended():
                break
            self._wait()
        self._sidecar.stop()
        if self._settle_for_ended():
            self._step_alive([])  # takes the worker off the list; when Redis does not answer, that forgets it by itself
        return self._stopping.code

    def turn(self) -> None:
        """Take one turn: reap, settle for the ended, fork what is missing, and step each role."""
        self._try("reap", self._reap)
        if self._has_ended():
            return
        self._settle_for_ended()
        if not self._stopping.is_stopping:
            self._try("fork", self._fork)
        self._step_alive(self._children.running())

    def _has_ended(self) -> bool:
        """Whether the worker stops, and no child is left."""
        return self._stopping.is_stopping and not self._children.running()

    def _settle_for_ended(self) -> bool:
        return self._try("settle for ended children", lambda: self._ended.step(self._children.all, self._clock()))

    def _step_alive(self, children: Sequence[ChildProcess]) -> None:
        """Step each role, and look after each whether to stop: while Redis hangs, one waits for 2 s."""
        for role in self._alive:
            self._try(type(role).__name__, partial(role.step, children, self._clock()))
            self._try("stop", lambda: self._stopping.step(self._children.all, self._clock()))
            if children and self._stopping.is_grace_over:
                return  # the children are being killed, and there is no time for the rest

    def _reap(self) -> None:
        for process_id, code in reap():
            if not self._children.ended(process_id, code):
                self._sidecar.ended(process_id, code)

    def _fork(self) -> None:
        self._sidecar.spawn()
        self._children.spawn()

    def _wait(self) -> None:
        """Sleep until a signal comes, for a tick at most, and notice when the sleep was much longer."""
        started = self._clock()
        number = wait_for_signal(self._tick)
        late = self._clock() - started - self._tick
        if late > STANDSTILL:
            logger.warning("the worker stood still for %.1f s; deadlines move by that", late)
            for child in self._children.all:
                child.slots.add_standstill(late)
        for child in self._children.all:
            child.slots.count_turn()
        if number is not None:
            self._stopping.heed(number, self._children.all)

    def _try(self, name: str, step: Callable[[], object]) -> bool:
        """Take a step, log its failure, and return whether it worked.

        A step that returns False did nothing, which ends no outage.
        """
        try:
            result = step()
        except Exception as error:
            self._outages.tell(f"the step {name!r} of the supervisor failed", error)
            return False
        if result is not False:
            self._outages.is_over(f"the step {name!r} of the supervisor failed")
        return True
