"""The loop of a child: takes jobs, runs them, settles them.

One step is one trip: settle what is finished and take what is new. While the server answers, the jobs that are here
run. The child blocks on the backend only when it holds nothing.

It starts a job only while its lease is certain: the last read that brought it was sent less than two thirds of a lease
ago. What waited for longer is read again, which begins its lease anew and shows whether it is still this child's.

A suspect, a job whose worker vanished at least twice, has the child to itself for one lease at most: the child reads
nothing and starts nothing else. The suspect is started when nothing runs any more, or beside what still runs when that
time is over. Meanwhile it waits in its slot, where the supervisor renews it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from delayq.backends.protocol import Consumer, SettleAnswer, Settlement, Stopped
from delayq.core.errors import BackendError
from delayq.core.outages import Outages
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable

logger: Final = logging.getLogger("delayq.worker")

IDLE_WAIT: Final = 5.0
BUSY_WAIT: Final = 0.02
"""Seconds between two looks for new jobs while some places are taken and others are free."""

LONGEST_PAUSE: Final = 2.0
"""Of the pauses between two tries while the backend is away; the first one is at most a tenth of a second."""

AWAY: Final = "the backend cannot be reached"


class UnderWay(msgspec.Struct, frozen=True):
    """A trip that is not answered yet: what it settles, how many jobs it takes, and when it was sent."""

    trip: Any
    finished: list[tuple[JobInFlight, Settlement]]
    limit: int
    sent_at: float


class Child:
    """The loop of one child process. `jobs_left`: how many jobs it may run; None = any number."""

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
        self._clock = clock
        self._sleep = sleep
        self._under_way: UnderWay | None = None
        self._trip_lock = threading.Lock()
        self._must_replay = False
        self._found_nothing = False
        self._outages = Outages(clock=clock)
        self.stopping = False

    def run(self) -> None:
        """Work until the child is to end, then finish what runs, hand back the rest, and settle."""
        while not self.is_ending():
            try:
                self.step()
            except BackendError as error:
                self._outages.tell(AWAY, error)
                self._try_again(self.step)
        self.drain()

    def is_ending(self) -> bool:
        """Whether nothing new is to be started: by an order, a signal, or because its jobs are used up."""
        if self.stopping or self._in_flight.must_leave or self._slots.is_to_stop():
            return True
        return self._jobs_left is not None and self._slots.finished() >= self._jobs_left

    def step(self) -> None:
        """Settle what is finished and take what is new, and run jobs while the answer is on its way."""
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
        """End: nothing new is taken or started, and what runs may finish. The supervisor sets the limit."""
        while True:
            try:
                self.complete()
                self.hand_back(self._in_flight.take_waiting())
                self.settle()
            except BackendError as error:
                self._outages.tell(AWAY, error)
                self._sleep(LONGEST_PAUSE / 10)
            if self._in_flight.is_idle():
                break
            self._runner.wait(BUSY_WAIT)
        self._runner.close()
        if refused := self._in_flight.refused():
            logger.warning("%d jobs that ended could not be settled: their queues refused it", refused)

    def settle(self) -> None:
        """Settle what is finished, and wait for the answer."""
        self.complete()
        self._complete(self._begin(limit=0))

    def hand_back(self, jobs: Sequence[JobInFlight]) -> None:
        """Give back jobs that were not started."""
        if not jobs:
            return
        try:
            self._consumer.hand_back([job.delivery.ref for job in jobs])
        except BackendError:
            self._must_replay = True
            raise
        finally:
            self._in_flight.free(jobs)

    def relieve(self) -> None:
        """Do what a slow handler keeps the main thread from: settle, and hand back what was not started."""
        self.settle()
        self.hand_back(self._in_flight.take_late())

    def complete(self) -> None:
        """Read the answer of the trip under way. The main thread or the watchdog does it; the other waits meanwhile."""
        with self._trip_lock:
            under_way, self._under_way = self._under_way, None
            self._complete(under_way)

    def _try_again(self, step: Callable[[], None]) -> None:
        """Take a step again and again until it works, with growing pauses, or until the child is to end."""

        def tell(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, BackendError):
                self._outages.tell(AWAY, error)

        def wait(seconds: float) -> None:
            self._runner.wait(0)
            self._sleep(seconds)

        retrying = Retrying(
            retry=retry_if_exception_type(BackendError),
            wait=wait_random_exponential(multiplier=LONGEST_PAUSE / 20, max=LONGEST_PAUSE),
            stop=lambda state: self.is_ending(),
            before_sleep=tell,
            sleep=wait,
            retry_error_callback=lambda state: None,
        )
        retrying(step)
        self._outages.is_over(AWAY)

    def _room(self) -> int:
        """Return how many jobs may be fetched now."""
        if self._is_quiet() or self._slots.is_paused():
            return 0
        room = self._in_flight.room()
        if self._jobs_left is not None:
            room = min(room, self._jobs_left - self._slots.finished() - self._in_flight.unfinished())
        return max(room, 0)

    def _begin(self, *, limit: int) -> UnderWay | None:
        """Send a trip that settles what is finished and takes up to `limit` new jobs; None when there is neither."""
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
        """Read the answer of a trip and act on it."""
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

    def _add(self, taken: Sequence[Any], sent_at: float) -> None:
        if taken:
            self._slots.set_busy()
            self._in_flight.add(taken, read_at=sent_at)

    def _wait_for_job(self) -> None:
        """Block until a job comes, as long as the child is idle."""
        self._slots.set_restart(self._consumer.switches().restart_ms)
        if not self._room():
            self._runner.wait(BUSY_WAIT)
            return
        sent_at = self._clock()
        try:
            taken = self._consumer.wait(self._idle_wait)
        except BackendError:
            self._must_replay = True
            raise
        self._found_nothing = not taken
        if not taken:
            self._slots.set_idle(since=sent_at)
        self._add(taken, sent_at)

    def _replay(self) -> None:
        """Take again what the backend holds for this child: deliveries whose answer was lost on the way."""
        sent_at = self._clock()
        # Under the lock: a job that the watchdog settles between the read and `hold` would be held, and run, again.
        with self._in_flight.lock:
            self._add(self._consumer.pending(), sent_at)
        self._must_replay = False

    def _is_quiet(self) -> bool:
        """Whether a suspect has the child to itself."""
        since = self._in_flight.quiet_since()
        return since is not None and self._clock() < since + self._lease

    def _next_job(self) -> JobInFlight | None:
        """Return the job to start now, if any. Of a suspect and others, InFlight names the suspect."""
        job = self._in_flight.next_job()
        if self._in_flight.suspects and self._is_quiet() and self._in_flight.is_running():
            return None
        return job

    def _start_jobs(self) -> None:
        """Start waiting jobs while there are free places."""
        while not self.is_ending():
            job = self._next_job()
            if job is None:
                return
            now = self._clock()
            oldest = now - self._lease * 2 / 3
            if job.read_at <= oldest:
                self._read_again(oldest)
            elif self._in_flight.start(job, now=now):
                self._runner.execute(job)
                if self._rest:
                    self._sleep(self._rest)

    def _read_again(self, oldest: float) -> None:
        """Read what waits again, and forget what is no longer ours: other workers may have these jobs by now."""
        self.complete()
        self._replay()
        self._in_flight.free(self._in_flight.take_read_until(oldest))

    def _free_settled(
        self, finished: Sequence[tuple[JobInFlight, Settlement]], answers: Sequence[int | BackendError]
    ) -> None:
        """Free the slots of settled jobs. Keep jobs that must be settled again: refused ones, and stopped ones."""
        refused: list[tuple[JobInFlight, Settlement]] = []
        stopped: list[tuple[JobInFlight, Settlement]] = []
        settled: list[JobInFlight] = []
        for (job, settlement), answer in zip(finished, answers, strict=True):
            if isinstance(answer, BackendError):
                refused.append((job, settlement))
                continue
            if answer == SettleAnswer.STOP_ASKED:
                stopped.append((job, Stopped(settlement.queue, settlement.id, settlement.entry)))
                continue
            settled.append(job)
            if answer == SettleAnswer.FENCED and job.delivery.id:
                logger.warning(
                    "job %s of %s was fenced: its lease ended while it ran, or an answer was lost after it was settled",
                    job.delivery.id,
                    job.delivery.queue,
                )
        self._in_flight.free(settled)
        if refused:
            self._in_flight.put_aside(refused)
        if stopped:
            self._in_flight.put_back(stopped)
