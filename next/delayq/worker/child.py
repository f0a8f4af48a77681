"""The loop of a child, the worker process that runs jobs: it fetches jobs, runs them, and settles them.

To settle a job is to report the outcome of its attempt. Each step of the loop sends at most one combined request to the
backend, for example to Redis. This request, called a trip, settles finished jobs and fetches new ones. While the reply
is on its way, the child runs the jobs that it already has. A step may also send other requests, for example to read
pending jobs again. Only a child without jobs uses a blocking read, which waits for a new job, at most `idle_wait`
seconds.

A lease is the time for which a fetched job belongs to a child. Each job of the child has a slot: the entry of the job
in the memory that the child shares with its supervisor. The supervisor renews the leases of all jobs in slots. The
child keeps these rules:

* Leases. The child starts a job only if the last read that delivered the job was sent less than two thirds of a lease
  ago, because the child cannot see whether the supervisor renewed the lease in time, for example after both were
  suspended. If that read is older, the child first re-reads its pending jobs: the jobs that were delivered to it and
  are not settled. This renews their leases and shows which jobs still belong to the child.
* Lost replies. If a step fails, the child does not know which jobs the backend delivered, so it reads its pending jobs
  again. It also does this if the supervisor asks for it, because more jobs are pending than the slots show. This read
  is called a replay.
* Suspects. A suspect is a job with at least two recoveries: its child or worker died, or the lease of the job expired,
  at least twice. For up to one lease after a suspect gets its slot, the child takes no other jobs, so that the suspect
  can run alone. The suspect starts as soon as no other job runs. If other jobs still run after one lease, the suspect
  starts beside them.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_random_exponential

from delayq.backends.protocol import Consumer
from delayq.backends.values import SettleAnswer, Settlement, Stopped
from delayq.core.display import several
from delayq.core.errors import BackendError
from delayq.core.outages import Outages
from delayq.core.shards import queue_of
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable

logger: Final = logging.getLogger("delayq.worker")

IDLE_WAIT: Final = 5.0
"""This constant has two uses. It is the default of `idle_wait`, in seconds. It is also the longest wait for the end of
a running job while the child may not fetch; `idle_wait` does not change this second use.
"""

BUSY_WAIT: Final = 0.02
"""Polling interval in seconds: while the child has running jobs and may fetch more, while the child has no job but may
not fetch (for example while SIGUSR2 pauses the worker), and in `drain`.
"""

LONGEST_PAUSE: Final = 2.0
"""Longest pause in seconds before a failed step is repeated. The first pause is at most a tenth of a second."""

UNREACHABLE: Final = "the backend cannot be reached"


class UnderWay(msgspec.Struct, frozen=True):
    """A trip that awaits its reply.

    `trip`: the object that the consumer returned. `finished`: the jobs that the trip settles. `limit`: number of jobs
    that the trip asks for; the trip may bring more if it reads several queues. `sent_at`: time at which the trip was
    sent.
    """

    trip: Any
    finished: list[tuple[JobInFlight, Settlement]]
    limit: int
    sent_at: float


class Child:
    """The loop of one child process.

    `lease`: shortest lease of the queues, in seconds. `jobs_left`: how many jobs the child may run; None = any number.
    `rest`: pause before the next job starts, in seconds. `idle_wait`: longest wait for a job in one call, in seconds.
    `awaits_follow_ups`: True = the child does not report that it is idle while follow-up jobs are about to be sent, so
    that a worker that stops when its queues are empty waits for these jobs.
    """

    def __init__(
        self,
        consumer: Consumer[Any],
        slots: SlotTable,
        in_flight: InFlight,
        runner: JobRunner,
        *,
        lease: float,
        jobs_left: int | None = None,
        rest: float = 0.0,
        idle_wait: float = IDLE_WAIT,
        awaits_follow_ups: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._consumer = consumer
        self._slots = slots
        self._in_flight = in_flight
        self._runner = runner
        self._lease = lease
        self._jobs_left = jobs_left
        self._rest = rest
        self._idle_wait = idle_wait
        self._awaits_follow_ups = awaits_follow_ups
        self._has_told_wait = False
        self._clock = clock
        self._sleep = sleep
        self._under_way: UnderWay | None = None
        self._trip_lock = threading.Lock()
        self._must_replay = False
        self._found_nothing = False
        self._outages = Outages(clock=clock)
        self.stopping = False
        """True after TERM."""

    def run(self) -> None:
        """Run steps until the child has to end.

        Then let running jobs finish, settle them, and hand back the jobs that have not started.
        """
        while not self.is_ending():
            try:
                self.step()
            except BackendError as error:
                self._outages.tell(UNREACHABLE, error)
                self._must_replay = True  # then the next step makes a call, which shows whether the error has ended
                self._try_again(self.step)
        self.drain()

    def is_ending(self) -> bool:
        """Return True if no more jobs may start.

        The causes: the supervisor ordered a stop, TERM arrived, the permitted number of jobs has finished, a handler
        raised MemoryError, or the process grew too large.
        """
        if self.stopping or self._in_flight.must_leave or self._slots.is_to_stop():
            return True
        return self._jobs_left is not None and self._slots.finished() >= self._jobs_left

    def step(self) -> None:
        """Settle finished jobs, fetch new ones, and run jobs while the reply is on its way."""
        self.complete()
        if self._must_replay or self._slots.take_replay():
            self._replay()
        found_nothing, self._found_nothing = self._found_nothing, False
        if not found_nothing or self._in_flight.refused():
            self._under_way = self._begin(limit=self._room())
        self._start_jobs()
        self.complete()
        if self._in_flight.is_idle():
            self._wait_for_job()
        elif not self._in_flight.has_finished() and self._next_job() is None:
            self._runner.wait(BUSY_WAIT if self._room() else IDLE_WAIT)

    def drain(self) -> None:
        """Let running jobs finish, settle them, and hand back waiting jobs, without fetching or starting any.

        `drain` has no time limit of its own. While the worker is shutting down, the supervisor kills the child at the
        end of the grace period.
        """
        while True:
            try:
                self.complete()
                self.hand_back(self._in_flight.take_waiting())
                self.settle()
            except BackendError as error:
                self._outages.tell(UNREACHABLE, error)
                self._sleep(LONGEST_PAUSE / 10)
            if self._in_flight.is_idle():
                break
            self._runner.wait(BUSY_WAIT)
        self._runner.close()
        if refused := self._in_flight.refused():
            logger.warning(
                "%s not settled, because Redis refused the calls for their queues. The supervisor tries to acknowledge "
                "jobs that succeeded, if neither a result nor a changed chain must be stored. The other finished jobs "
                "run again",
                several(refused, "finished job"),
            )

    def settle(self) -> None:
        """Settle finished jobs, and wait for the reply."""
        self.complete()
        self._complete(self._begin(limit=0))

    def hand_back(self, jobs: Sequence[JobInFlight]) -> None:
        """Hand back jobs that were not started, which means to return them to their queues.

        Their slots become free even if the call fails. The next replay finds jobs that still belong to the child.
        """
        if not jobs:
            return
        try:
            self._consumer.hand_back([job.delivery.ref for job in jobs])
        except BackendError:
            self._must_replay = True
            raise
        finally:
            self._in_flight.free(jobs)

    def settle_and_hand_back(self) -> None:
        """While a slow handler blocks the main thread, settle finished jobs and hand back jobs that waited too long.

        The watchdog thread calls this.
        """
        self.settle()
        self.hand_back(self._in_flight.take_late())

    def complete(self) -> None:
        """If a trip is under way, wait for its reply, free the slots of settled jobs, and add new jobs.

        The main thread and the watchdog both call this method. A lock lets only one of them complete the trip under
        way. The trip of `settle` needs no lock, because only the caller of `settle` knows that trip.
        """
        with self._trip_lock:
            under_way, self._under_way = self._under_way, None
            self._complete(under_way)

    def _try_again(self, step: Callable[[], None]) -> None:
        """Repeat a step with growing pauses until it succeeds, or until the child has to end."""

        def log_failure(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, BackendError):
                self._outages.tell(UNREACHABLE, error)

        def wait(seconds: float) -> None:
            self._runner.wait(0)
            self._sleep(seconds)

        retrying = Retrying(
            retry=retry_if_exception_type(BackendError),
            wait=wait_random_exponential(multiplier=LONGEST_PAUSE / 20, max=LONGEST_PAUSE),
            stop=lambda state: self.is_ending(),
            before_sleep=log_failure,
            sleep=wait,
        )
        try:
            retrying(step)
        except RetryError:
            return  # the child has to end, and the backend still does not answer
        self._outages.is_over(UNREACHABLE)

    def _room(self) -> int:
        """Return how many jobs may be fetched now: 0 while SIGUSR2 pauses the worker or a suspect should run alone."""
        if self._is_blocked_by_suspect() or self._slots.is_paused():
            return 0
        room = self._in_flight.room()
        if self._jobs_left is not None:
            room = min(room, self._jobs_left - self._slots.finished() - self._in_flight.unfinished())
        return max(room, 0)

    def _begin(self, *, limit: int) -> UnderWay | None:
        """Send a trip that settles finished jobs and fetches up to `limit` new ones, without waiting for the reply.

        Return None if no job is finished and `limit` is 0.
        """
        finished = self._in_flight.take_finished()
        if not finished and not limit:
            return None
        sent_at = self._clock()
        try:
            trip = self._consumer.begin([settlement for _, settlement in finished], limit)
        except BackendError:
            self._in_flight.put_back(finished)
            raise
        return UnderWay(trip, finished, limit, sent_at)

    def _complete(self, under_way: UnderWay | None) -> None:
        """Wait for the reply of a trip, free the slots of settled jobs, and add the new jobs."""
        if under_way is None:
            return
        try:
            answers, taken = self._consumer.complete(under_way.trip)
        except BackendError:
            self._in_flight.put_back(under_way.finished)
            self._must_replay = True
            raise
        self._free_settled(under_way.finished, answers)
        self._add(taken, under_way.sent_at)
        if under_way.limit:  # then the trip may have read the switches
            self._slots.set_restart(self._consumer.switches().restart_ms)

    def _add(self, taken: Sequence[Any], sent_at: float) -> None:
        if taken:
            self._slots.set_busy()
            self._in_flight.add(taken, read_at=sent_at)

    def _wait_for_job(self) -> None:
        """Block until a job comes, for at most `idle_wait`. If no job may be fetched now, sleep for BUSY_WAIT instead.

        Only an idle child calls this.
        """
        self._slots.set_restart(self._consumer.switches().restart_ms)
        if not self._room():
            self._runner.wait(BUSY_WAIT)
            return
        sent_at = self._clock()
        try:
            # Look for outbox records first, and then for jobs. A relay stores a follow-up job before it deletes the
            # outbox record, so a child that finds neither has not missed a follow-up job.
            has_follow_ups = self._awaits_follow_ups and self._consumer.has_follow_ups()
            taken = self._consumer.wait(self._idle_wait)
        except BackendError:
            self._must_replay = True
            raise
        self._found_nothing = not taken
        if not taken and not has_follow_ups:
            self._slots.set_idle(since=sent_at, has_unread=self._consumer.has_unread())
        elif not taken and not self._has_told_wait:
            self._has_told_wait = True
            logger.info("no job is ready; waiting for follow-up jobs of ended jobs")
        self._add(taken, sent_at)

    def _replay(self) -> None:
        """Read all pending jobs of this child, to find jobs that were delivered in a lost reply."""
        sent_at = self._clock()
        # Without the lock, the watchdog could settle a job between the read and `_add`. `_add` would then take the job
        # for a new one, and the job would run again.
        with self._in_flight.lock:
            self._add(self._consumer.pending(), sent_at)
        self._must_replay = False

    def _is_blocked_by_suspect(self) -> bool:
        """Return True if the child takes no new jobs because of a suspect. Other jobs may still run."""
        since = self._in_flight.suspect_since()
        return since is not None and self._clock() < since + self._lease

    def _next_job(self) -> JobInFlight | None:
        """Return the job to start now, or None if no job may start.

        While a suspect blocks the child, no job starts before the running jobs have ended, so that the suspect runs
        alone. `InFlight.next_job` returns suspects first, so no other job overtakes a suspect.
        """
        job = self._in_flight.next_job()
        if self._in_flight.suspects and self._is_blocked_by_suspect() and self._in_flight.is_running():
            return None
        return job

    def _start_jobs(self) -> None:
        """Start waiting jobs while threads are free."""
        while not self.is_ending():
            job = self._next_job()
            if job is None or self._are_jobs_used_up():
                return
            now = self._clock()
            oldest = now - self._lease * 2 / 3
            if job.read_at <= oldest:
                self._read_again(oldest)
            elif self._in_flight.start(job, now=now):
                self._runner.execute(job)
                if self._rest:
                    self._sleep(self._rest)

    def _are_jobs_used_up(self) -> bool:
        """Return True if the running jobs are the last ones that this child may run.

        Other jobs can be waiting, because a read of several queues can bring more jobs than were asked for. `drain`
        hands these jobs back.
        """
        return self._jobs_left is not None and (self._slots.finished() + self._in_flight.running() >= self._jobs_left)

    def _read_again(self, oldest: float) -> None:
        """Re-read the pending jobs. Then forget the waiting jobs whose last read was sent at `oldest` or earlier.

        These jobs were not among the pending jobs, so they usually belong to other workers by now. If a job is missing
        only because its queue refused the read, a later replay finds it again.
        """
        self.complete()
        self._replay()
        self._in_flight.free(self._in_flight.take_read_until(oldest))

    def _free_settled(
        self, finished: Sequence[tuple[JobInFlight, Settlement]], answers: Sequence[int | BackendError]
    ) -> None:
        """Free the slots of settled and fenced jobs. Keep the others, to settle them again.

        The others are jobs whose queue refused the call, and jobs that were to be released or to fail although a cancel
        asked them to stop. These cancelled jobs are then settled as stopped.
        """
        if answers.count(SettleAnswer.SETTLED) == len(answers):
            self._in_flight.free([job for job, _ in finished])
            return
        refused: list[tuple[JobInFlight, Settlement]] = []
        stopped: list[tuple[JobInFlight, Settlement]] = []
        settled: list[JobInFlight] = []
        for (job, settlement), answer in zip(finished, answers, strict=True):
            if isinstance(answer, BackendError):
                refused.append((job, settlement))
                continue
            if answer == SettleAnswer.STOP_ASKED:
                logger.info(
                    "job %s of %s does not run again, because the job or its batch was cancelled",
                    settlement.id,
                    queue_of(settlement.queue),
                    extra={"job_id": settlement.id, "queue": queue_of(settlement.queue)},
                )
                stopped.append((job, Stopped(settlement.queue, settlement.id, settlement.entry)))
                continue
            settled.append(job)
            if answer == SettleAnswer.FENCED and job.delivery.id:
                logger.warning(
                    "job %s of %s: result not recorded, because the lease expired while the job ran (the job may run "
                    "again), or because the result was already recorded and the reply was lost",
                    job.delivery.id,
                    queue_of(job.delivery.queue),
                    extra={"job_id": job.delivery.id, "queue": queue_of(job.delivery.queue)},
                )
        self._in_flight.free(settled)
        if refused:
            self._in_flight.put_aside(refused)
        if stopped:
            self._in_flight.put_back(stopped)
