"""The jobs that a child holds: waiting, running, finished. Each is in one of the three, and its slot says so."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from delayq.backends.protocol import Acked, Delivery, EntryKey, Settlement
from delayq.core.control_flow import JobCancelled, JobInterrupted, JobTimedOut, WorkerShutdown
from delayq.worker.shared_memory import CAPACITY, SlotState, SlotTable, Stop

PREFETCH_SECONDS: Final = 0.02
"""Work that a child may hold: enough to hide a round trip, too little to keep jobs from other workers. Half of it is
here while the other half is on its way."""

MAX_BATCH: Final = 250

SUSPECT: Final = 2
"""A delivery with this many recoveries or more is a suspect: it may have killed its workers."""

RETRY_PAUSE: Final = 1.0
"""Seconds until what its queue refused to settle is settled again."""


class JobInFlight(msgspec.Struct, gc=False, eq=False):
    """A delivery in its slot since `added_at`. `read_at` is when the last read that brought it was sent.

    `is_suspect`: it is better run with nothing else in the process. `limit` is how many seconds it may run, and
    `limit_at` when it must have ended, by the clock of the slots; 0 = no limit. It is interrupted once.
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
    """The jobs of one child. Its lock keeps the main thread, the watchdog and the executor's threads apart."""

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
        self.must_leave = False
        """Whether the process is to be replaced: a handler ran out of memory."""

    def add(self, deliveries: Sequence[Delivery], *, read_at: float) -> None:
        """Add deliveries as waiting, suspects first. For a delivery that is already held, only update its read time.

        What finds no free slot stays with the backend, and comes with a later replay.
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
        """Return the job that may be started next; None when none waits or all places are taken."""
        with self.lock:
            if not self._waiting or len(self._running) >= self._threads:
                return None
            return self._waiting[0]

    def start(self, job: JobInFlight, *, now: float) -> bool:
        """Move a waiting job to running; `now` is by the clock of this object.

        Returns False when the watchdog has taken it meanwhile.
        """
        with self.lock:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            job.started_at = now
            self._running[job.slot] = job
            self.slots.mark(job.slot, SlotState.RUNNING)
            return True

    def arm(self, job: JobInFlight, limit: float | None) -> None:
        """Set how many seconds a running job may run from now on; None = without limit."""
        if limit is not None:
            job.limit = limit
            job.limit_at = self.slots.now() + limit
            self.slots.set_limit(job.slot, job.limit_at)

    def park(self, job: JobInFlight) -> None:
        """Show a started job as waiting until `enter`: when its process ends before, it is charged with nothing."""
        self.slots.mark(job.slot, SlotState.WAITING)

    def enter(self, job: JobInFlight, limit: float | None) -> None:
        """Show a parked job as running, because its handler begins, and set its limit."""
        job.started_at = self._clock()
        self.arm(job, limit)
        self.slots.mark(job.slot, SlotState.RUNNING)

    def take_interruptions(self, *, may_time_out: bool = True) -> list[tuple[JobInFlight, JobInterrupted]]:
        """Return what is to be raised in jobs that run: each is interrupted once."""
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
                    error = JobCancelled("The job was asked to stop.")
                elif may_time_out and job.limit_at and now >= job.limit_at:
                    error = JobTimedOut(f"The job ran longer than {job.limit:.3g} s.")
                elif is_last_moment:
                    error = WorkerShutdown("The worker stops, and its grace is nearly over.")
                if error is not None:
                    job.is_interrupted = True
                    found.append((job, error))
        return found

    def is_stopping(self, job: JobInFlight) -> bool:
        """Whether a running job should come to an end."""
        return job.is_interrupted or self.slots.is_cancelled(job.slot) or self.slots.is_to_stop()

    def note_progress(self, job: JobInFlight, progress: dict[str, Any]) -> None:
        """Keep the last progress report of a job, for `take_progress`."""
        with self.lock:
            self._progress[job] = progress

    def take_progress(self) -> list[tuple[JobInFlight, dict[str, Any]]]:
        """Take the reports that came since the last call."""
        with self.lock:
            progress, self._progress = self._progress, {}
            return list(progress.items())

    def quiet_since(self) -> float | None:
        """Return since when a suspect is held that waits or runs; None without one."""
        if not self.suspects:
            return None
        with self.lock:
            candidates = [*self._running.values(), *itertools.islice(self._waiting, 1)]
            return max((job.added_at for job in candidates if job.is_suspect), default=None)

    def finish(self, job: JobInFlight, settlement: Settlement) -> None:
        """Move a running job to finished, and learn from how long it ran."""
        seconds = self._clock() - job.started_at
        with self.lock:
            del self._running[job.slot]
            self._finished.append((job, settlement))
            # Up at once, down slowly: after one slow job, quick ones behind it are not fetched to be handed back.
            average = self._seconds_per_job + (seconds - self._seconds_per_job) / 16
            self._seconds_per_job = max(seconds, average)
            if type(settlement) is Acked and not settlement.retention_ms:
                self.slots.mark(job.slot, SlotState.DONE)
            self.slots.count_finished()

    def take_finished(self) -> list[tuple[JobInFlight, Settlement]]:
        """Take what is finished, to settle it. Their slots stay until `free`, or `put_back` when settling failed."""
        with self.lock:
            finished = self._finished
            self._finished = []
            if self._refused and self._clock() >= self._refused_until:
                finished, self._refused = self._refused + finished, []
            return finished

    def put_back(self, finished: Sequence[tuple[JobInFlight, Settlement]]) -> None:
        """Return what could not be settled, to try it again."""
        with self.lock:
            self._finished[:0] = finished

    def put_aside(self, refused: Sequence[tuple[JobInFlight, Settlement]]) -> None:
        """Keep what its queue refused to settle, to try it again after a second."""
        with self.lock:
            self._refused += refused
            self._refused_until = self._clock() + RETRY_PAUSE

    def refused(self) -> int:
        """Return how many settlements were refused and not yet tried again."""
        with self.lock:
            return len(self._refused)

    def take_waiting(self) -> list[JobInFlight]:
        """Take what has not been started, to hand it back. Their slots stay until `free`."""
        return self._take(lambda job: True)

    def take_late(self) -> list[JobInFlight]:
        """Take what has waited for longer than a prefetch lasts, to hand it back.

        A suspect with a free place waits for quiet, and stays.
        """
        oldest = self._clock() - PREFETCH_SECONDS
        with self.lock:
            has_free_thread = self.free_threads() > 0
            return self._take(lambda job: job.added_at < oldest and not (has_free_thread and job.is_suspect))

    def take_read_until(self, time: float) -> list[JobInFlight]:
        """Take what waits and was not read since this time, to forget it."""
        return self._take(lambda job: job.read_at <= time)

    def free(self, jobs: Sequence[JobInFlight]) -> None:
        """Forget jobs that are settled or handed back."""
        with self.lock:
            slots = [job.slot for job in jobs]
            self.slots.free(slots)
            self._free += slots
            for job in jobs:
                del self._held[job.delivery.queue, job.delivery.entry]
                self.suspects -= job.is_suspect

    def room(self) -> int:
        """Return how many jobs may be fetched now, so that about 20 ms of work are held, by the measure of the last.

        A place whose job has been running for longer than that counts as taken: what is fetched for it would wait, and
        be handed back.
        """
        with self.lock:
            places = self._threads - (self._long_runs() if self._running else 0)
            if not places:
                return 0
            wanted = int(places * PREFETCH_SECONDS / max(self._seconds_per_job, 1e-6))
            batch = min(max(wanted // 2, places), MAX_BATCH)
            held = len(self._waiting) + len(self._running) - (self._threads - places)
            return max(min(max(wanted, places) - held, batch, len(self._free)), 0)

    def unfinished(self) -> int:
        """Return how many jobs wait or run."""
        with self.lock:
            return len(self._waiting) + len(self._running)

    def free_threads(self) -> int:
        """Return how many jobs may be started now."""
        with self.lock:
            return self._threads - len(self._running)

    def is_idle(self) -> bool:
        """Whether nothing waits, runs or is to be settled now."""
        with self.lock:
            return not (self._waiting or self._running or self._finished)

    def has_finished(self) -> bool:
        """Whether something is to be settled now."""
        with self.lock:
            return bool(self._finished)

    def is_running(self) -> bool:
        """Whether some job runs."""
        with self.lock:
            return bool(self._running)

    def runs_longer_than(self, seconds: float) -> bool:
        """Whether some job has been running for longer than this."""
        now = self._clock()
        with self.lock:
            return any(now - job.started_at > seconds for job in self._running.values())

    def _long_runs(self) -> int:
        """Return how many jobs have been running for longer than a prefetch lasts."""
        oldest = self._clock() - PREFETCH_SECONDS
        return sum(job.started_at < oldest for job in self._running.values())

    def _take(self, chosen: Callable[[JobInFlight], bool]) -> list[JobInFlight]:
        """Take the chosen ones of what waits."""
        with self.lock:
            taken = [job for job in self._waiting if chosen(job)]
            self._waiting = deque(job for job in self._waiting if not chosen(job))
            return taken
