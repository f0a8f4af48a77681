"""The worker: fetch, run, settle, in batches, until it is told or has reason to stop.

One turn settles what the last one finished and reads the next batch in the same round trip; only
when that came back empty does it wait. Deliveries run one after another in this thread. The keeper
thread renews their leases meanwhile, and mover and janitor run beside it unless they are switched
off.

When the backend is away nothing is lost: outcomes are kept and settled later, and after any error
while reading the worker first replays what the backend holds for it, because a reply with
deliveries may have been lost on the way.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence

from delayq.core.errors import BackendError, BackendUnavailable
from delayq.core.events import JobFenced, Listener, WorkerStopping
from delayq.drivers.base import Consumer, Delivery, Driver, Settlement
from delayq.jobs.registry import Registry
from delayq.loops.janitor import Janitor
from delayq.loops.log_limit import LogLimit
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.worker.held import Held, boot_clock
from delayq.worker.keeper import Keeper
from delayq.worker.limits import Limits
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.patience import wait_for_backend
from delayq.worker.prefetch import Prefetch
from delayq.worker.runner import JobRunner
from delayq.worker.stop import StopNow, StopSignals

log = logging.getLogger("delayq.worker")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Worker:
    """One worker on `driver`. `run` blocks until it stops and may be called once."""

    def __init__(
        self, driver: Driver, registry: Registry, options: WorkerOptions, listeners: Sequence[Listener] = ()
    ) -> None:
        self.signals = StopSignals()
        self._driver = driver
        self._registry = registry
        self._options = options
        self._listeners = tuple(listeners)
        self._limits = Limits(options)
        self._prefetch = Prefetch()
        self._log_limit = LogLimit()
        self._failures = 0
        self._replay = False
        self._resent: set[int] = set()

    def run(self) -> StopReason:
        """Work until there is a reason to stop; returns it."""
        name = self._options.name or f"dq:{_host()}:{os.getpid()}:{secrets.token_hex(4)}"
        with self.signals:
            consumer = wait_for_backend(
                lambda: self._driver.consumer(name, self._options.queues), self.signals.asked, self._outage
            )
            if consumer is None:
                return StopReason.INTERRUPTED
            self._consumer: Consumer = consumer
            self._held = Held(consumer.lease_s())
            about = {
                "host": _host(),
                "pid": os.getpid(),
                "started_ms": consumer.now_ms(),
                "jobs": list(self._registry.names()),
            }
            self._keeper = Keeper(consumer, self._held, about, self._settle_finished)
            self._runner = JobRunner(self._registry, self._options.fallback, consumer.now_ms, self._listeners)
            loops = self._start_loops()
            self._keeper.start()
            try:
                reason = self._work()
            finally:
                self._drain(loops)
        self._tell(WorkerStopping(name, reason, self._limits.jobs))
        return reason

    def _work(self) -> StopReason:
        try:
            while True:
                reason = self._limits.reason(self.signals.asked.is_set())
                if reason is not None:
                    return reason
                try:
                    if not self._turn() and (reason := self._when_empty()) is not None:
                        return reason
                    self._failures = 0
                except BackendError as error:
                    self._outage(error)
        except StopNow:
            self._held.abandon()
            return StopReason.INTERRUPTED

    def _turn(self) -> bool:
        """Settle, read, run. False when there was nothing to run."""
        deliveries = self._replayed() if self._replay or self._keeper.replay_wanted else self._read()
        if not deliveries:
            return False
        started, jobs, size = time.perf_counter(), 0, sum(len(item.raw) for item in deliveries)
        while not (self.signals.asked.is_set() or self._limits.jobs_left() == 0):
            delivery = self._held.start()
            if delivery is None:
                break
            jobs += 1
            self._run_one(delivery)
        if self._held.stale:
            log.warning("this process was stopped for too long; it drops what it had not started and asks again")
            self._held.stale, self._replay = False, True
        self._prefetch.observe(jobs, time.perf_counter() - started, size)
        return True

    def _run_one(self, delivery: Delivery) -> None:
        if delivery.recoveries and self._held.others():
            self._clear_the_room()
        self._held.finish(self._runner.run(delivery))
        self._limits.jobs += 1
        if self._options.rest_ms:
            self._settle_finished()
            self.signals.asked.wait(self._options.rest_ms / 1000)

    def _read(self) -> list[Delivery]:
        finished = self._held.take_finished()
        sent_at = boot_clock()
        count = min(self._prefetch.count(), self._limits.jobs_left())
        try:
            fetched = self._consumer.fetch(finished, count)
        except BackendError:
            self._keep(finished)
            raise
        self._settled(finished, fetched.settled)
        deliveries = fetched.deliveries
        if not deliveries and not self._options.stop_when_empty and not self.signals.asked.is_set():
            sent_at = boot_clock()
            deliveries = self._consumer.wait(self._options.sleep_ms / 1000)
        self._held.add(deliveries, sent_at)
        return deliveries

    def _replayed(self) -> list[Delivery]:
        """What the backend holds for this worker and the worker does not know of."""
        known = {(item.queue, item.id, item.entry) for item in self._held.all()}
        sent_at = boot_clock()
        deliveries = [item for item in self._consumer.replay() if (item.queue, item.id, item.entry) not in known]
        self._replay = self._keeper.replay_wanted = False
        self._held.add(deliveries, sent_at)
        return deliveries or self._read()

    def _clear_the_room(self) -> None:
        """A job whose worker vanished before starts alone: if it kills this process, it kills nobody else's job."""
        waiting = self._held.take_waiting()
        if waiting:
            self._consumer.hand_back(waiting)
        self._settle_finished()

    def _settle_finished(self) -> None:
        """Settle without reading; what cannot be settled now is kept."""
        finished = self._held.take_finished()
        if not finished:
            return
        try:
            self._settled(finished, self._consumer.settle(finished))
        except BackendError:
            self._keep(finished)
            raise

    def _settled(self, finished: Sequence[Settlement], ours: Sequence[bool]) -> None:
        self._held.settled(finished)
        for settlement, mine in zip(finished, ours, strict=True):
            resent = id(settlement) in self._resent
            self._resent.discard(id(settlement))
            if not mine:
                job = settlement.delivery
                log.log(
                    logging.INFO if resent else logging.WARNING,
                    "job %s: %s",
                    job.id,
                    "settled already, or taken back"
                    if resent
                    else "it was taken back; its outcome here does not count",
                )
                self._tell(JobFenced(job.id, job.queue, resent))

    def _keep(self, finished: Sequence[Settlement]) -> None:
        self._resent |= {id(settlement) for settlement in finished}
        self._held.unsettled(finished)

    def _when_empty(self) -> StopReason | None:
        if self._options.once:
            return StopReason.ONCE
        if self._options.stop_when_empty:
            moved = (
                sum(self._driver.promote(queue).moved for queue in self._options.queues) if self._options.mover else 0
            )
            return None if moved else StopReason.EMPTY
        return None

    def _outage(self, error: BackendError) -> None:
        """Wait a little longer each time; afterwards ask first for what may have been delivered meanwhile."""
        self._replay = True
        self._failures += 1
        if hidden := self._log_limit.may_log(type(error).__name__):
            log.warning("%s (%d times)", error, hidden)
        self.signals.asked.wait(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10)))

    def _start_loops(self) -> list[Loop]:
        if not self._options.mover:
            return []
        queues = self._options.queues
        janitor = Janitor(self._driver, queues, tidy_every_s=self._options.tidy_every_ms / 1000)
        loops = [Loop(Mover(self._driver, queues)), Loop(janitor)]
        for loop in loops:
            loop.start()
        return loops

    def _drain(self, loops: Sequence[Loop]) -> None:
        """Settle what is finished, hand back the rest, leave. When the backend is away the leases do that work."""
        for loop in loops:
            loop.ask_to_stop()
        self._keeper.stop()
        try:
            self._settle_finished()
            self._consumer.hand_back(self._held.take_waiting())
            self._consumer.close()
        except BackendError as error:
            unavailable = isinstance(error, BackendUnavailable)
            log.warning("left without settling everything: %s", error, exc_info=not unavailable)
        self._runner.close()
        for loop in loops:
            loop.stop(timeout_s=2.0)

    def _tell(self, event: JobFenced | WorkerStopping) -> None:
        for listener in self._listeners:
            listener(event)


def _host() -> str:
    name = socket.gethostname()
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name) or "unknown"
