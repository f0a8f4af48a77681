"""Runs the jobs of a child: begins each attempt, passes it to the runner for its kind of handler, and ends it."""

import logging
import os
import threading
from typing import Any, Final

from delayq.backends.values import Acked, Settlement
from delayq.core.control_flow import JobInterrupted
from delayq.core.options import TIMEOUT_GRACE_MS
from delayq.core.outcome import GiveUp, Outcome, done
from delayq.jobs.context import JobContext
from delayq.jobs.own_loop import run_in_own_loop
from delayq.jobs.registry import Registry
from delayq.jobs.worker_context import WorkerContext
from delayq.worker.attempt import Attempt, Attempts, current_attempt
from delayq.worker.forking import exit_as_copy
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners.event_loop import EventLoopRunner
from delayq.worker.runners.inline import InlineRunner
from delayq.worker.runners.runner import Runner
from delayq.worker.runners.threads import ThreadRunner
from delayq.worker.shared_memory import Part

logger: Final = logging.getLogger("delayq.worker")

PLACE_RESERVE_MS: Final = 8_000
"""A job has its place under a concurrency limit for its timeout, plus `timeout_grace`, plus this number of ms. After
timeout and `timeout_grace`, the supervisor kills the process of the job, but the supervisor or the reply of the server
can be late.
"""


class JobRunner:
    """Runs jobs that InFlight has started.

    Coroutine functions run in an event loop. Plain functions run in the main thread, or in several other threads if
    `threads` is more than 1. `inline`: the runner for the main thread; None = plain functions run in other threads.
    `timeout_grace`: how long a job may go on after its timeout, in seconds. `log_jobs`: log one line per attempt.
    """

    def __init__(
        self,
        in_flight: InFlight,
        attempts: Attempts,
        registry: Registry,
        *,
        threads: int,
        timeout_grace: float = TIMEOUT_GRACE_MS / 1000,
        log_jobs: bool = False,
    ) -> None:
        self._in_flight = in_flight
        self._attempts = attempts
        self._log_jobs = log_jobs
        self._place_reserve_ms = round(timeout_grace * 1000) + PLACE_RESERVE_MS
        self._has_ended = threading.Event()
        self._is_copy = False
        os.register_at_fork(after_in_child=self._become_copy)
        self.inline = InlineRunner(self._end) if threads == 1 else None
        if self.inline is not None:
            current_attempt.set(attempts.current)  # a backoff function, for example, runs in this thread
        self._plain: Runner = self.inline or ThreadRunner(self._begin, self._end_and_wake, threads=threads)
        self._loop: Runner | None = EventLoopRunner(self._begin, self._end_in_loop) if registry.has_async() else None
        self._in_loop: set[JobInFlight] = set()

    def execute(self, job: JobInFlight) -> None:
        """Run a job, now or soon. At its end, pass its settlement to InFlight."""
        attempt = self._attempts.begin(job.delivery)
        if not isinstance(attempt, Attempt):
            self._in_flight.finish(job, attempt)
            return
        if attempt.handler.wants_context:
            attempt.job_context = self._context(job, attempt)
        if attempt.handler.is_async and self._loop is not None:
            self._in_flight.park(job)
            self._in_loop.add(job)
            self._loop.run(job, attempt)
        else:
            if self.inline is None:
                self._in_flight.park(job)
            else:
                self._in_flight.arm(job, attempt.limit, name=attempt.envelope.name)
                self._attempts.current.attempt = attempt
            self._plain.run(job, attempt)
            self._attempts.current.attempt = None

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Raise an error in the handler of a job, if its runner can do that."""
        runner = self._loop if self._loop is not None and job in self._in_loop else self._plain
        runner.interrupt(job, error)

    def wait(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until a job ends in another thread, or `wake` is called.

        If that has happened since the last wait, return at once.
        """
        self._has_ended.wait(timeout)
        self._has_ended.clear()

    def wake(self) -> None:
        """End a wait."""
        self._has_ended.set()

    def close(self) -> None:
        """Stop the runners. Call this only when no job is running."""
        self._plain.close()
        if self._loop is not None:
            self._loop.close()

    def _context(self, job: JobInFlight, attempt: Attempt) -> JobContext:
        in_flight, timeout_ms = self._in_flight, attempt.policy.timeout_ms
        return WorkerContext(
            attempt.envelope,
            job.delivery.envelope,
            tries=attempt.policy.tries,
            due_ms=job.delivery.due_ms,
            recoveries=job.delivery.recoveries,
            token=job.delivery.entry,
            place_ms=timeout_ms and timeout_ms + self._place_reserve_ms,
            is_stopping=lambda: in_flight.is_stopping(job),
            on_progress=lambda progress: in_flight.note_progress(job, progress),
        )

    def _begin(self, job: JobInFlight, attempt: Attempt) -> None:
        self._in_flight.enter(job, attempt.limit, name=attempt.envelope.name)

    def _end(self, job: JobInFlight, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        outcome: Outcome | None = None
        late_error: BaseException | None = None
        if error is not None or self._is_copy:
            self._note_end(error)
        try:
            if error is None:
                outcome = done(attempt.policy)
            else:
                outcome = self._decide(job, attempt, error)
                if hook := attempt.context.run(self._attempts.call_failed_hook, attempt, outcome):
                    attempt.context.run(run_in_own_loop, hook)
            settlement = self._attempts.settle(attempt, outcome, result)
        except BaseException as broken:  # a thread that ends here would never run another job
            late_error = broken
            settlement = self._attempts.settle_broken(attempt, outcome, broken)
        if attempt.is_listened:
            attempt.context.run(self._tell_ended, job, attempt, settlement, outcome, late_error)
        self._in_flight.finish(job, settlement)
        if self._log_jobs:
            self._attempts.log_end(attempt, outcome, settlement, self._in_flight.runtime(job))

    def _decide(self, job: JobInFlight, attempt: Attempt, error: BaseException) -> Outcome:
        """Decide the outcome of a handler that raised `error`.

        The slot records which code runs next, so that the supervisor can name this code in the failure if it must kill
        the child.
        """
        slots = self._in_flight.slots
        slots.mark_part(job.slot, Part.BACKOFF)
        outcome = self._attempts.decide(attempt, error)
        if isinstance(outcome, GiveUp):
            slots.mark_part(job.slot, Part.HOOK)
        return outcome

    def _tell_ended(
        self,
        job: JobInFlight,
        attempt: Attempt,
        settlement: Settlement,
        outcome: Outcome | None,
        late_error: BaseException | None,
    ) -> None:
        """Call the listeners of JobEnded.

        If they hang and the process is killed, the supervisor acknowledges the job, provided that the handler succeeded
        and nothing has to be stored (no result, no changed chain). Any other job counts as running at the kill; the
        table in crash_recovery.py shows what then happens to the job.
        """
        is_done = type(settlement) is Acked and not settlement.retention_ms and not settlement.envelope
        self._in_flight.slots.mark_part(job.slot, Part.LISTENER_OF_DONE if is_done else Part.LISTENER)
        attempt.tell_ended(settlement, outcome, late_error)

    def _note_end(self, error: BaseException | None) -> None:
        if self._is_copy:
            exit_as_copy(error)  # the handler forked this process, which must not report an outcome
        if error is not None and _is_out_of_memory(error) and not self._in_flight.must_leave:
            logger.warning("a handler ran out of memory; its child process will be replaced")
            self._in_flight.must_leave = True

    def _end_and_wake(self, job: JobInFlight, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        """End an attempt that ran in another thread, and wake the main thread, which may be waiting for it."""
        self._end(job, attempt, result, error)
        self._has_ended.set()

    async def _end_in_loop(self, job: JobInFlight, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        """End an attempt that ran in the event loop. An async hook `failed` is awaited there too."""
        outcome: Outcome | None = None
        late_error: BaseException | None = None
        if error is not None or self._is_copy:
            self._note_end(error)
        try:
            if error is None:
                outcome = done(attempt.policy)
            else:
                outcome = self._decide(job, attempt, error)
                if hook := self._attempts.call_failed_hook(attempt, outcome):
                    await hook
            settlement = self._attempts.settle(attempt, outcome, result)
        except BaseException as broken:
            late_error = broken
            settlement = self._attempts.settle_broken(attempt, outcome, broken)
        if attempt.is_listened:
            self._tell_ended(job, attempt, settlement, outcome, late_error)
        self._in_loop.discard(job)
        self._in_flight.finish(job, settlement)
        self._has_ended.set()
        if self._log_jobs:
            self._attempts.log_end(attempt, outcome, settlement, self._in_flight.runtime(job))

    def _become_copy(self) -> None:
        self._is_copy = True


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(MemoryError) is not None
    return isinstance(error, MemoryError)
