"""The process that shows a worker's metrics: forked like a child, because nothing but one loop may run in the parent.

It reads memory that all processes of the worker share, so what it shows survives each of them, and itself.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence

from delayq.loops.vitals import Vitals
from delayq.worker.fork import Process, fork
from delayq.worker.meter import Meter
from delayq.worker.plan import Plan
from delayq.worker.watchdog import end_group

log = logging.getLogger("delayq.supervisor")

AGAIN_S = 1.0


class Booth:
    """Keeps that process alive, if the plan wants one."""

    def __init__(self, plan: Plan, meters: Sequence[Meter], vitals: Vitals) -> None:
        self._stand = plan.stand
        self._meters = meters
        self._vitals = vitals
        self._process: Process | None = None
        self._due = 0.0

    def processes(self) -> list[Process]:
        """The process, if there is one."""
        return [self._process] if self._process is not None else []

    def step(self, others: list[Process]) -> None:
        """Make it, or make it again."""
        if self._process is not None and self._process.has_ended():
            log.error("the process that shows metrics (%d) died; another one starts", self._process.pid)
            self._process.wait()
            self._process, self._due = None, time.monotonic() + AGAIN_S
        if self._stand is None or self._process is not None or time.monotonic() < self._due:
            return
        try:
            self._process = fork(self._show, others)
        except OSError as error:
            log.error("the process that shows metrics cannot be started: %s; tried again in %g s", error, AGAIN_S)
            self._due = time.monotonic() + AGAIN_S

    def end(self) -> None:
        """End it."""
        self._stand = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _show(self, pipe: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._stand is not None:
            self._stand.open(self._meters, self._vitals)
            os.read(pipe, 1)
        end_group()
