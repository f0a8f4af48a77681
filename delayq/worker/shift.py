"""A worker's shift, from its connection to its end: turns of fill, run and settle, and leaving in good order."""

from __future__ import annotations

import logging
import os
import time

from delayq.core.errors import AWAY, DelayqError
from delayq.drivers.base import Consumer, Delivery, Driver
from delayq.jobs.registry import Registry
from delayq.loops.pauses import Pauses
from delayq.loops.troubles import Troubles
from delayq.worker.held import Held
from delayq.worker.intake import Intake
from delayq.worker.keeper import Keeper
from delayq.worker.limits import Limits
from delayq.worker.listeners import Listeners
from delayq.worker.names import host_name
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.prefetch import Prefetch
from delayq.worker.runner import JobRunner
from delayq.worker.settler import Settler
from delayq.worker.stop import StopNow, StopSignals

log = logging.getLogger("delayq.worker")

KEEPER_S = 2.0


class Shift:
    """Runs the jobs that `consumer` brings. Used once: `start`, `work`, then `leave`, whatever `work` did."""

    def __init__(
        self,
        consumer: Consumer,
        driver: Driver,
        registry: Registry,
        options: WorkerOptions,
        signals: StopSignals,
        listeners: Listeners,
    ) -> None:
        self.limits = Limits(options)
        self._consumer = consumer
        self._driver = driver
        self._options = options
        self._signals = signals
        self._held = Held(consumer.lease_s())
        self._settler = Settler(consumer, self._held, listeners)
        self._intake = Intake(consumer, self._held, self._settler, signals)
        self._runner = JobRunner(registry, options.fallback, consumer.now_ms, signals, listeners)
        about = {
            "host": host_name(),
            "pid": os.getpid(),
            "started_ms": consumer.now_ms(),
            "jobs": list(registry.names()),
        }
        self._keeper = Keeper(consumer, self._held, self._settler, self._runner.call_off, about)
        self._prefetch = Prefetch()
        self._pauses = Pauses()
        self._looked_twice = False
        self._troubles = Troubles(log)

    def start(self) -> None:
        """Start the keeper."""
        self._keeper.start()

    def work(self) -> StopReason:
        """Turn after turn until there is a reason to stop; returns it."""
        try:
            while True:
                reason = self._reason() or self._turn()
                if reason is not None:
                    return reason
        except StopNow:
            self._held.abandon()
            self._held.incomplete = True  # what was being read may have been lost with the reading
            return StopReason.ABORTED

    def leave(self) -> None:
        """Settle what is finished, hand back the rest. When the backend is away the leases do that work."""
        answers = self._keeper.stop(KEEPER_S)
        self._runner.close()
        if not answers or (self._pauses.failures and self._held.empty()):
            log.warning("left without a word: the backend does not answer")
            return
        try:
            self._settler.settle()
            self._settler.hand_back()
            if self._held.incomplete:
                self._intake.replay()
                self._settler.hand_back()
            self._consumer.close()
        except DelayqError as error:
            log.warning("left without settling or handing back everything: %s", error)

    def _reason(self) -> StopReason | None:
        if self._runner.out_of_memory:
            log.error("a handler ran out of memory; this process is not to be trusted any more and stops")
            return StopReason.MEMORY
        return self.limits.reason(self._signals.asked.is_set())

    def _turn(self) -> StopReason | None:
        """Settle, read, run. A backend that is away costs a pause; everything held stays held."""
        try:
            most = self.limits.jobs_left()
            wait_s = 0.0 if self._leaves_when_empty() else self._options.sleep_ms / 1000
            dry = self._intake.fill(min(self._prefetch.count(), most), wait_s)
            self._run_waiting()
            reason = self._when_empty() if dry else None
            self._looked_twice = self._looked_twice and dry
        except DelayqError as error:
            self._troubles.tell(error)
            self._signals.asked.wait(self._pauses.next_s())
            return None
        self._pauses.reset()
        return reason

    def _run_waiting(self) -> None:
        """Start what waits, one after another, while nothing speaks against it."""
        started, jobs, size, most = time.perf_counter(), 0, 0, self.limits.jobs_left()
        while jobs < most and not self._signals.asked.is_set() and not self._runner.out_of_memory:
            delivery = self._held.start()
            if delivery is None:
                break
            jobs, size = jobs + 1, size + len(delivery.raw)
            self._run_one(delivery)
        self._prefetch.observe(jobs, time.perf_counter() - started, size)

    def _run_one(self, delivery: Delivery) -> None:
        if delivery.recoveries and self._held.others():
            self._clear_the_room()
        self._held.finish(self._runner.run(delivery))
        self.limits.jobs += 1
        if self._options.rest_ms:
            self._settler.settle()
            self._signals.asked.wait(self._options.rest_ms / 1000)

    def _clear_the_room(self) -> None:
        """A job whose worker vanished before starts alone: if it kills this process, it kills nobody else's job."""
        try:
            self._settler.hand_back()
        except AWAY:
            self._held.abandon()
            raise
        except DelayqError as error:
            self._troubles.tell(error)  # a damaged queue keeps its jobs held, but must not keep this one for ever
        try:
            self._settler.settle()
        except AWAY:
            self._held.abandon()
            raise

    def _leaves_when_empty(self) -> bool:
        return self._options.once or self._options.stop_when_empty

    def _when_empty(self) -> StopReason | None:
        """Nothing was there to run. What has just fallen due may not be in the stream yet, so look there first."""
        if not self._leaves_when_empty() or self._signals.asked.is_set():
            return None
        if self._options.mover and not self._looked_twice:
            # The mover's own thread may have moved a job between our look and this one, so look once more after it.
            for queue in self._options.queues:
                self._driver.promote(queue)
            self._looked_twice = True
            return None
        return StopReason.ONCE if self._options.once else StopReason.EMPTY
