"""Mover, janitor and relay beside a worker: a process of their own, where no user code runs.

A handler that holds the interpreter's lock delays no other job's promotion, and nobody's recovery.
"""

from __future__ import annotations

import logging
import os
import signal
import time

from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.loops.served import Roll
from delayq.loops.vitals import Beating, Vitals
from delayq.worker.fork import Process, fork
from delayq.worker.plan import Plan
from delayq.worker.watchdog import end_group

log = logging.getLogger("delayq.supervisor")

AGAIN_S = 1.0


class Care:
    """Keeps that process alive. It holds nothing, so ending it at any moment loses nothing."""

    def __init__(self, plan: Plan, vitals: Vitals) -> None:
        self.process: Process | None = None
        self._plan = plan
        self._vitals = vitals
        self._wanted = plan.options.mover
        self._due = 0.0

    def processes(self) -> list[Process]:
        """The process, if there is one."""
        return [self.process] if self.process is not None else []

    def step(self, others: list[Process]) -> None:
        """Make it, or make it again."""
        if self.process is not None and self.process.has_ended():
            log.error("mover and janitor (process %d) died; they start again in %g s", self.process.pid, AGAIN_S)
            self.process.wait()
            self.process, self._due = None, time.monotonic() + AGAIN_S
        if self._wanted and self.process is None and time.monotonic() >= self._due:
            plan, vitals = self._plan, self._vitals
            try:
                self.process = fork(lambda pipe: _look_after(plan, vitals, pipe), others)
            except OSError as error:
                log.error("mover and janitor cannot be started: %s; tried again in %g s", error, AGAIN_S)
                self._due = time.monotonic() + AGAIN_S

    def end(self) -> None:
        """End it."""
        self._wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _look_after(plan: Plan, vitals: Vitals, pipe: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    driver, options = plan.driver_factory(), plan.options
    roll, relay = Roll(driver), Relay(driver)
    tidy_every_s = options.tidy_every_ms / 1000
    janitor = Janitor(driver, options.queues, tidy_every_s=tidy_every_s, told=vitals.tidied, roll=roll)
    mover = Mover(driver, options.queues, owing=relay.hint, told=vitals.promoted, roll=roll)
    for role in (janitor, relay, mover):
        Loop(Beating(role, vitals)).start()
    os.read(pipe, 1)
    end_group()
