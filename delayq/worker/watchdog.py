"""A child's second thread: it sees to what the main thread cannot see while a handler runs.

    the parent is gone          end at once; nobody keeps the leases any more
    a job is over its time      interrupt it; so also when it is to be cancelled, and when the worker's grace ends
    a job runs long             settle what is finished, hand back what has not started
    a job ends beside a wait    settle it, because a next link or a whole batch may wait for that
    the child shall leave       end a wait for new work, and soon also one for an answer

A handler that holds the interpreter's lock stops this thread too. Then the supervisor acts from outside;
LOOKED_AT tells it for how long.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from delayq.core.errors import DelayqError
from delayq.core.interrupts import JobCancelled, JobInterrupted, WorkerShutdown
from delayq.worker.clock import STANDSTILL_S, boot_clock
from delayq.worker.crew_inline import nudge
from delayq.worker.held import Held
from delayq.worker.holding import SHUTDOWN, START_WITHIN, Holding
from delayq.worker.killed import timed_out
from delayq.worker.memory import MemoryLimit
from delayq.worker.prefetch import WORTH_S
from delayq.worker.slots import CANCEL, Slots, Stop, Word
from delayq.worker.supply import Supply

log = logging.getLogger("delayq.worker")

LOOK_S = 0.010
IDLE_LOOK_S = 0.100
RETRY_S = 0.2
GATHER_S = 0.002  # what ends at about the same time is settled together
MANY_RINGS = 4096
ANSWER_S = 1.0  # how long a child that shall leave waits for an answer
HEAR_S = 1.0  # within that a supervisor that stood still too says so


def _nobody_listens() -> None:
    """No job wants to hear of the end."""


class Watchdog:
    """Watches one child. `pipe` ends with the parent; `memory_mb` 0 = no limit; `farewell` tells jobs of the end."""

    def __init__(self, slots: Slots, holding: Holding, supply: Supply, *, pipe: int, memory_mb: int) -> None:
        self.farewell: Callable[[], None] = _nobody_listens
        self._slots = slots
        self._holding = holding
        self._supply = supply
        self._memory = MemoryLimit(memory_mb)
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN | select.POLLHUP)
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._rope, False)
        self._pipe = pipe
        self._poll.register(self._bell, select.POLLIN)
        self._rest_until = self._late_from = 0.0
        self._calling_since: float | None = None

    def start(self) -> None:
        """Begin; it ends with the process."""
        self._slots.floats[Word.LOOKED_AT] = boot_clock()
        threading.Thread(target=self._run, name="delayq-watchdog", daemon=True).start()

    def ring(self) -> None:
        """A job has ended in another thread: when the main thread waits for work, settle it now."""
        if self._supply.waiting:
            with suppress(BlockingIOError):  # full of rings that were not heard yet
                os.write(self._rope, b".")

    def _run(self) -> None:
        while True:
            look_s = LOOK_S if self._holding.held else IDLE_LOOK_S
            for ready, _ in self._poll.poll(look_s * 1000):
                if ready == self._pipe:
                    end_group()
                os.read(self._bell, MANY_RINGS)
                time.sleep(GATHER_S)
            self._look_at_the_clock()
            self._end_waits(self._slots.ints[Word.STOP])
            if self._slots.ints[Word.STOP] == Stop.DRAIN:
                self.farewell()
            try:
                self._look()
            except DelayqError as error:
                self._rest_until = time.monotonic() + RETRY_S
                self._supply.complain(error)
            except Exception:
                log.exception("the watchdog failed; it goes on")

    def _look_at_the_clock(self) -> None:
        """Tell the supervisor that this process goes on; and people, when it did not for so long that leases are over.

        What was not started is dropped then, or handed back, whichever thread is first: it may be another's.
        """
        floats, now = self._slots.floats, boot_clock()
        still_s = now - floats[Word.LOOKED_AT]
        if still_s > STANDSTILL_S:  # frozen, or its interpreter's lock was held: the supervisor knows which
            self._late_from = now + HEAR_S
        if still_s > floats[Word.LEASE] * START_WITHIN:
            log.warning("this process stood still for %.1f s; it starts nothing that it had only held", still_s)
        floats[Word.LOOKED_AT] = now

    def _end_waits(self, stop: int) -> None:
        if self._supply.disturbed:
            nudge()
        elif stop != Stop.DRAIN or not self._supply.calling:
            self._calling_since = None
        elif self._calling_since is None:
            self._calling_since = time.monotonic()
        elif time.monotonic() - self._calling_since >= ANSWER_S:
            nudge()

    def interrupt_late(self, *, late: bool = True) -> None:
        """Interrupt what is over its time (unless `late` is False), past its deadline, cancelled, or cut off by a stop.

        Called by TERM too: a handler that holds the interpreter's lock keeps it from this thread, and a call that TERM
        ends must not go on as if nothing had been said.
        """
        for held, why in self._holding.to_interrupt(late=late):
            if held.interrupter is not None:
                held.interrupter(held, self._error(held, why))

    def _error(self, held: Held, why: int) -> JobInterrupted:
        if why == CANCEL:
            return JobCancelled()
        if why == SHUTDOWN:
            return WorkerShutdown()
        started, soft_at = self._slots.started[held.slot], self._slots.soft_at[held.slot]
        return timed_out(self._slots.working_clock() - started, soft_at - started)

    def _look(self) -> None:
        self.interrupt_late(late=boot_clock() >= self._late_from)
        self._slots.ints[Word.OVER_MEMORY] = int(self._memory.exceeded())
        if time.monotonic() < self._rest_until:
            return
        try:
            if self._holding.kept_waiting_for() > WORTH_S or self._holding.returning:
                self._supply.hand_back()
        finally:
            if self._supply.waiting or self._supply.unsettled_for() > WORTH_S:
                self._supply.settle()  # a main thread that waits for work settles nothing


def end_group() -> None:
    """End this process and all it started, at once."""
    os.killpg(0, signal.SIGKILL)
