"""The worker: fetch, run, settle, in batches, until it is told or has reason to stop.

One turn settles what the last one finished and reads the next batch in the same round trip; only
when that came back empty does it wait. Deliveries run one after another in this thread. The keeper
thread renews their leases meanwhile, and mover and janitor run beside it unless they are switched
off.

    Worker     signals, start-up, mover and janitor
    Shift      the turns, and leaving in good order
    Intake     how deliveries come: replay, fetch, wait       JobRunner   one delivery → its outcome
    Held       what is held, and in which place it is         Settler     outcomes → the backend
    Keeper     renews, makes room, says "I am here"

When the backend is away nothing is lost: outcomes are kept and settled later, and after any error
while reading the worker first replays what the backend holds for it, because a reply with
deliveries may have been lost on the way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from delayq.core.events import Listener, WorkerStopping
from delayq.drivers.base import Driver
from delayq.jobs.registry import Registry
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.worker.listeners import Listeners
from delayq.worker.names import consumer_name
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.patience import wait_for_backend
from delayq.worker.shift import Shift
from delayq.worker.stop import StopNow, StopSignals

JOIN_S = 2.0


class Worker:
    """One worker on `driver`. `run` blocks until it stops and may be called once; `signals.ask()` stops it."""

    def __init__(
        self, driver: Driver, registry: Registry, options: WorkerOptions, listeners: Sequence[Listener] = ()
    ) -> None:
        self.signals = StopSignals()
        self.name = options.name or consumer_name()
        self._driver = driver
        self._registry = registry
        self._options = options
        self._listeners = Listeners(listeners)

    def run(self) -> StopReason:
        """Work until there is a reason to stop; returns it.

        Waits for a backend that is not there yet. Raises `ConfigError` for one that cannot be used.
        """
        reason, jobs = StopReason.INTERRUPTED, 0
        with self.signals:
            shift = self._connect()
            if shift is not None:
                reason, jobs = self._work(shift), shift.limits.jobs
        self._listeners.tell(WorkerStopping(self.name, reason, jobs))
        return reason

    def _connect(self) -> Shift | None:
        self.signals.breakable = True
        try:
            return wait_for_backend(self._new_shift, self.signals.asked)
        except StopNow:
            return None
        finally:
            self.signals.breakable = False

    def _new_shift(self) -> Shift:
        consumer = self._driver.consumer(self.name, self._options.queues)
        return Shift(consumer, self._driver, self._registry, self._options, self.signals, self._listeners)

    def _work(self, shift: Shift) -> StopReason:
        with self.signals.kept_from_threads():
            loops = self._start_loops()
            shift.start()
        try:
            return shift.work()
        finally:
            for loop in loops:
                loop.ask_to_stop()
            patient_until = time.monotonic() + JOIN_S
            shift.leave()
            for loop in loops:
                loop.stop(max(0.0, patient_until - time.monotonic()))

    def _start_loops(self) -> list[Loop]:
        if not self._options.mover:
            return []
        queues = self._options.queues
        janitor = Janitor(self._driver, queues, tidy_every_s=self._options.tidy_every_ms / 1000)
        loops = [Loop(Mover(self._driver, queues)), Loop(janitor)]
        for loop in loops:
            loop.start()
        return loops
