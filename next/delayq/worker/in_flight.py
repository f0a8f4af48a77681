"""The jobs that a child has fetched and not yet settled. Each job is waiting, running or finished.

`InFlight` is shared by the main thread, the watchdog thread and the threads that run handlers. `InFlight` also writes
the state of each job into its slot: the entry of the job in the memory that the child shares with the supervisor. If
the child dies, the supervisor reads the slots, to settle or redeliver each job.

`InFlight` also decides how many jobs the child fetches (`room`), so that each thread has about 20 ms of work, and each
free thread at least one job. `InFlight` estimates the work from the running times of earlier jobs.

`threads` is the number of jobs that the child runs at a time. Async jobs share one event loop, but each of them counts
as one thread. So a free thread means that one more job may start.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from delayq.backends.values import Acked, Delivery, EntryKey, Settlement
from delayq.core.control_flow import JobCancelled, JobInterrupted, JobTimedOut, WorkerShutdown
from delayq.core.outcome import SUSPECT
from delayq.worker.shared_memory import CAPACITY, SlotState, SlotTable, Stop

PREFETCH_SECONDS: Final = 0.02
"""How much work a child fetches in advance for each thread, in seconds.

20 ms of work is enough to hide a round trip, and so little that other workers still find jobs. One fetch asks for at
most half this amount, or for one job per thread if that is more, and never for more than MAX_BATCH jobs. A fetch that
reads several queues may bring more.
"""

MAX_BATCH: Final = 250
"""Maximum number of jobs that one fetch asks for."""

RETRY_PAUSE: Final = 1.0
"""Seconds until refused settlements are sent again."""


class JobInFlight(msgspec.Struct, gc=False, eq=False):
    """A job that was delivered to this child, and that has a slot.

    `read_at`: when the last read that delivered the job was sent. `added_at`: when the job got its slot. `started_at`:
    when the job started. These times come from the clock of InFlight. `limit`: how many seconds the job may run.
    `limit_at`: the time at which the job exceeds this limit, by the clock `slots.now()`. For both, 0 = no limit.

    `is_suspect`: the job should run alone in the process. `is_interrupted`: `take_interruptions` has returned the job,
    so it is not interrupted again.
    """

    slot: int
    delivery: Delivery
    read_at: float
    added_at: float
    is_suspect: bool
    started_at: float = 0.0
    limit: float = 0.0
    limit_at: float = 0.0
    is_interrupted: bool = False


class InFlight:
    """The jobs of one child. `slots`: the slots of the child. `threads`: how many jobs the child runs at a time.

    `lock` protects this object, because the main thread, the watchdog thread and the threads that run handlers use it.
    """

    def __init__(self, slots: SlotTable, *, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self.lock = threading.RLock()
        self._threads = threads
        self._clock = clock
        self._free = list(range(CAPACITY))
        self._held: dict[EntryKey, JobInFlight] = {}
        self._waiting: deque[JobInFlight] = deque()
        self._running: dict[int, JobInFlight] = {}
        self._finished: list[tuple[JobInFlight, Settlement]] = []
        self._refused: list[tuple[JobInFlight, Settlement]] = []
        self._refused_until = 0.0
        self._seconds_per_job = PREFETCH_SECONDS
        self._progress: dict[JobInFlight, dict[str, Any]] = {}
        self.suspects = 0
        """Number of suspects in slots."""
        self.must_leave = False
        """True if the process must be replaced, because a handler ran out of memory or the process grew too large."""

    def add(self, deliveries: Sequence[Delivery], *, read_at: float) -> None:
        """Add deliveries as waiting jobs, suspects in front.

        If the child already has a delivery, only its read time is updated. If no slot is free, the delivery is left
        out, and a later replay, which reads all pending jobs, finds the delivery again.
        """
        now = self._clock()
        with self.lock:
            for delivery in deliveries:
                key = delivery.queue, delivery.entry
                job = self._held.get(key)
                if job is not None:
                    job.read_at = read_at
                elif self._free:
                    is_suspect = delivery.recoveries >= SUSPECT
                    job = JobInFlight(self._free.pop(), delivery, read_at, now, is_suspect)
                    self.slots.write(job.slot, delivery)
                    self._held[key] = job
                    if is_suspect:
                        self.suspects += 1
                        self._waiting.appendleft(job)
                    else:
                        self._waiting.append(job)

    def next_job(self) -> JobInFlight | None:
        """Return the job that may start next, or None if no job is waiting or all threads are busy."""
        with self.lock:
            if not self._waiting or len(self._running) >= self._threads:
                return None
            return self._waiting[0]

    def start(self, job: JobInFlight, *, now: float) -> bool:
        """Move a waiting job to running. `now` must come from this object's clock.

        Returns False if the watchdog has taken the job out in the meantime, to hand it back.
        """
        with self.lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
            job.started_at = now
            self._running[job.slot] = job
            self.slots.mark_running(job.slot, since=now)
            return True

    def arm(self, job: JobInFlight, limit: float | None, *, name: str) -> None:
        """Set how many seconds a running job may run from now on; None = no limit.

        The job name, `name`, and the time at which the limit ends are also written into the slot, for the supervisor.
        """
        if limit is not None:
            job.limit = limit
            job.limit_at = self.slots.now() + limit
        self.slots.begin(job.slot, limit=job.limit_at, name=name)

    def park(self, job: JobInFlight) -> None:
        """Mark a started job as waiting in its slot, for the supervisor, until `enter` is called.

        The handler begins later, in another thread or in the event loop. If the process dies before `enter`, this
        does not count as a recovery of the job.
        """
        self.slots.mark(job.slot, SlotState.WAITING)

    def enter(self, job: JobInFlight, limit: float | None, *, name: str) -> None:
        """Mark a parked job as running, because its handler begins now, and set its limit and name as `arm` does."""
        job.started_at = self._clock()
        self.arm(job, limit, name=name)
        self.slots.mark_running(job.slot, since=job.started_at)

    def take_interruptions(self, *, may_time_out: bool = True) -> list[tuple[JobInFlight, JobInterrupted]]:
        """Return the running jobs that must be interrupted, each with the error to raise in its handler.

        Each job is returned at most once: after a cancel, after its time limit, or shortly before the grace period
        ends. With `may_time_out=False`, time limits are not checked.
        """
        if not self._running:
            return []
        now = self.slots.now()
        is_last_moment = self.slots.stop_order() is Stop.INTERRUPT
        found: list[tuple[JobInFlight, JobInterrupted]] = []
        with self.lock:
            for job in self._running.values():
                error: JobInterrupted | None = None
                if job.is_interrupted:
                    continue
                if self.slots.is_cancelled(job.slot):
                    error = JobCancelled("A cancel asked the job to stop.")
                elif may_time_out and job.limit_at and now >= job.limit_at:
                    error = JobTimedOut(f"The job ran longer than {job.limit:.3g} s.")
                elif is_last_moment:
                    error = WorkerShutdown("The worker is shutting down and its grace period is about to end.")
                if error is not None:
                    job.is_interrupted = True
                    found.append((job, error))
        return found

    def is_stopping(self, job: JobInFlight) -> bool:
        """Return True if a running job should end soon: after an interruption, a cancel, or a stop order."""
        return job.is_interrupted or self.slots.is_cancelled(job.slot) or self.slots.is_to_stop()

    def note_progress(self, job: JobInFlight, progress: dict[str, Any]) -> None:
        """Keep the latest progress report of a job until `take_progress` is called."""
        with self.lock:
            self._progress[job] = progress

    def take_progress(self) -> list[tuple[JobInFlight, dict[str, Any]]]:
        """Return the latest progress report of each job that reported since the last call."""
        with self.lock:
            progress, self._progress = self._progress, {}
            return list(progress.items())

    def suspect_since(self) -> float | None:
        """Return the time at which the newest unfinished suspect got its slot, or None if there is none."""
        if not self.suspects:
            return None
        with self.lock:
            candidates = [*self._running.values(), *itertools.islice(self._waiting, 1)]
            return max((job.added_at for job in candidates if job.is_suspect), default=None)

    def runtime(self, job: JobInFlight) -> float:
        """Return for how many seconds a job has been running."""
        return self._clock() - job.started_at

    def finish(self, job: JobInFlight, settlement: Settlement) -> None:
        """Move a running job to finished, and use its running time to estimate the next running times.

        A job that only has to be acknowledged is marked as done in its slot. If the child dies, the supervisor can then
        acknowledge the job. A job with a changed chain is not marked, because the supervisor does not know the change.
        """
        seconds = self._clock() - job.started_at
        with self.lock:
            del self._running[job.slot]
            self._finished.append((job, settlement))
            # The estimate rises at once and falls slowly. So after one slow job the child prefetches less, and has
            # fewer jobs to hand back.
            average = self._seconds_per_job + (seconds - self._seconds_per_job) / 16
            self._seconds_per_job = max(seconds, average)
            if type(settlement) is Acked and not settlement.retention_ms and not settlement.envelope:
                self.slots.mark(job.slot, SlotState.DONE)
            self.slots.count_finished()

    def take_finished(self) -> list[tuple[JobInFlight, Settlement]]:
        """Take out the finished jobs, to settle them. Refused settlements are among them once their pause is over.

        Their slots stay occupied until `free` is called. If settling fails, call `put_back`; if a queue refused to
        settle a job, call `put_aside`.
        """
        with self.lock:
            finished = self._finished
            self._finished = []
            if self._refused and self._clock() >= self._refused_until:
                finished, self._refused = self._refused + finished, []
            return finished

    def put_back(self, finished: Sequence[tuple[JobInFlight, Settlement]]) -> None:
        """Put back finished jobs that could not be settled. The next `take_finished` returns them."""
        with self.lock:
            self._finished[:0] = finished

    def put_aside(self, refused: Sequence[tuple[JobInFlight, Settlement]]) -> None:
        """Put aside finished jobs whose queue refused to settle them. After a second, `take_finished` returns them."""
        with self.lock:
            self._refused += refused
            self._refused_until = self._clock() + RETRY_PAUSE

    def refused(self) -> int:
        """Return how many refused settlements are put aside."""
        with self.lock:
            return len(self._refused)

    def take_waiting(self) -> list[JobInFlight]:
        """Take out all waiting jobs, to hand them back. Their slots stay occupied until `free` is called."""
        return self._take(lambda job: True)

    def take_late(self) -> list[JobInFlight]:
        """Take out the jobs that have waited for more than 20 ms, to hand them back.

        Keep suspects if a thread is free: they wait on purpose, until the running jobs have ended.
        """
        oldest = self._clock() - PREFETCH_SECONDS
        with self.lock:
            has_free_thread = self.free_threads() > 0
            return self._take(lambda job: job.added_at < oldest and not (has_free_thread and job.is_suspect))

    def take_read_until(self, time: float) -> list[JobInFlight]:
        """Take out the waiting jobs whose last read was sent at `time` or earlier, so that the caller can forget them.

        Other workers usually own these jobs by now.
        """
        return self._take(lambda job: job.read_at <= time)

    def free(self, jobs: Sequence[JobInFlight]) -> None:
        """Forget jobs that were settled, handed back or lost, and free their slots."""
        with self.lock:
            slots = [job.slot for job in jobs]
            self.slots.free(slots)
            self._free += slots
            for job in jobs:
                del self._held[job.delivery.queue, job.delivery.entry]
                self.suspects -= job.is_suspect

    def room(self) -> int:
        """Return how many jobs to fetch now.

        Each thread should have about 20 ms of work, and each free thread at least one job. For the size of one fetch,
        see PREFETCH_SECONDS. Do not fetch for threads whose job has already run for 20 ms, because a job fetched
        for them would wait and be handed back.
        """
        with self.lock:
            threads = self._threads - (self._long_runs() if self._running else 0)
            if not threads:
                return 0
            wanted = int(threads * PREFETCH_SECONDS / max(self._seconds_per_job, 1e-6))
            batch = min(max(wanted // 2, threads), MAX_BATCH)
            held = len(self._waiting) + len(self._running) - (self._threads - threads)
            return max(min(max(wanted, threads) - held, batch, len(self._free)), 0)

    def unfinished(self) -> int:
        """Return the number of waiting and running jobs."""
        with self.lock:
            return len(self._waiting) + len(self._running)

    def free_threads(self) -> int:
        """Return the number of threads without a running job."""
        with self.lock:
            return self._threads - len(self._running)

    def is_idle(self) -> bool:
        """Return True if nothing is waiting, running or finished. Refused settlements do not count."""
        with self.lock:
            return not (self._waiting or self._running or self._finished)

    def has_finished(self) -> bool:
        """Return True if a finished job can be settled now. Refused settlements do not count."""
        with self.lock:
            return bool(self._finished)

    def running(self) -> int:
        """Return the number of running jobs."""
        with self.lock:
            return len(self._running)

    def is_running(self) -> bool:
        """Return True if a job is running."""
        with self.lock:
            return bool(self._running)

    def runs_longer_than(self, seconds: float) -> bool:
        """Return True if a job has been running for more than `seconds`."""
        now = self._clock()
        with self.lock:
            return any(now - job.started_at > seconds for job in self._running.values())

    def _long_runs(self) -> int:
        """Return how many jobs have been running for more than 20 ms."""
        oldest = self._clock() - PREFETCH_SECONDS
        return sum(job.started_at < oldest for job in self._running.values())

    def _take(self, chosen: Callable[[JobInFlight], bool]) -> list[JobInFlight]:
        """Take out the waiting jobs for which `chosen` returns True."""
        with self.lock:
            taken = [job for job in self._waiting if chosen(job)]
            self._waiting = deque(job for job in self._waiting if not chosen(job))
            return taken
