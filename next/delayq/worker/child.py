"""A child: takes jobs, runs them, settles them.

One step is one trip: settle what is finished and take what is new. While the server answers, the jobs that are here
run. The child blocks on Redis only when it holds nothing.

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

from delayq.backends.protocol import Consumer, Settlement
from delayq.core.errors import BackendError
from delayq.worker.executors import JobExecutor
from delayq.worker.in_flight import HeldJob, InFlight
from delayq.worker.shared_memory import SlotTable

logger: Final = logging.getLogger("delayq.worker")

IDLE_WAIT: Final = 1.0
BUSY_WAIT: Final = 0.02
"""Seconds between two looks for new jobs while some places are taken and others are free."""

PAUSE_AFTER_ERROR: Final = 1.0


class UnderWay(msgspec.Struct, frozen=True):
    """A trip that is not answered yet: what it settles, how many jobs it takes, and when it was sent."""

    trip: Any
    finished: list[tuple[HeldJob, Settlement]]
    limit: int
    sent_at: float


class Child:
    """The loop of one child process."""

    def __init__(
        self,
        consumer: Consumer[Any],
        slots: SlotTable,
        in_flight: InFlight,
        executor: JobExecutor,
        *,
        lease: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._slots = slots
        self._in_flight = in_flight
        self._executor = executor
        self._lease = lease
        self._clock = clock
        self._under_way: UnderWay | None = None
        self._trip_lock = threading.Lock()
        self._must_replay = False
        self.stopping = False

    def run(self) -> None:
        """Work until `stopping` is set, then finish what runs, hand back the rest, and settle."""
        while not self.stopping:
            try:
                self.step()
            except BackendError as error:
                logger.warning("%s; the child tries again", error)
                time.sleep(PAUSE_AFTER_ERROR)
        self.drain()

    def step(self) -> None:
        """Settle what is finished and take what is new, and run jobs while the answer is on its way."""
        self.complete()
        if self._must_replay or self._slots.take_replay():
            self._replay()
        self._under_way = self._begin(limit=0 if self._is_quiet() else self._in_flight.room())
        self._start_jobs()
        self.complete()
        if self._in_flight.is_idle():
            self._wait_for_job()
        elif not self._in_flight.has_finished() and self._next_job() is None:
            may_take = self._in_flight.free_places() > 0 and not self._is_quiet()
            self._executor.wait(BUSY_WAIT if may_take else IDLE_WAIT)

    def drain(self) -> None:
        """End: nothing new is taken or started, what runs may finish."""
        self.complete()
        self.hand_back(self._in_flight.take_waiting())
        while not self._in_flight.is_idle():
            self.settle()
            self._executor.wait(IDLE_WAIT)
        self._executor.close()
        if refused := self._in_flight.refused():
            logger.warning("%d jobs that ended could not be settled: their queues refused it", refused)

    def settle(self) -> None:
        """Settle what is finished, and wait for the answer."""
        self.complete()
        self._complete(self._begin(limit=0))

    def hand_back(self, jobs: Sequence[HeldJob]) -> None:
        """Give back jobs that were not started."""
        if not jobs:
            return
        try:
            self._consumer.hand_back([job.delivery.held for job in jobs])
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
        self._in_flight.hold(taken, read_at=under_way.sent_at)

    def _wait_for_job(self) -> None:
        """Block until a job comes, as long as the child is idle."""
        sent_at = self._clock()
        try:
            taken = self._consumer.wait(IDLE_WAIT)
        except BackendError:
            self._must_replay = True
            raise
        self._in_flight.hold(taken, read_at=sent_at)

    def _replay(self) -> None:
        """Take again what the backend holds for this child: deliveries whose answer was lost on the way."""
        sent_at = self._clock()
        # Under the lock: a job that the watchdog settles between the read and `hold` would be held, and run, again.
        with self._in_flight.lock:
            self._in_flight.hold(self._consumer.pending(), read_at=sent_at)
        self._must_replay = False

    def _is_quiet(self) -> bool:
        """Whether a suspect has the child to itself."""
        since = self._in_flight.quiet_since()
        return since is not None and self._clock() < since + self._lease

    def _next_job(self) -> HeldJob | None:
        """Return the job to start now, if any. Of a suspect and others, InFlight names the suspect."""
        if self._is_quiet() and self._in_flight.is_running():
            return None
        return self._in_flight.next_job()

    def _start_jobs(self) -> None:
        """Start waiting jobs while there are free places."""
        while not self.stopping:
            job = self._next_job()
            if job is None:
                return
            oldest = self._clock() - self._lease * 2 / 3
            if job.read_at <= oldest:
                self._read_again(oldest)
            elif self._in_flight.start(job):
                self._executor.execute(job)

    def _read_again(self, oldest: float) -> None:
        """Read what waits again, and forget what is no longer ours: other workers may have these jobs by now."""
        self.complete()
        self._replay()
        self._in_flight.free(self._in_flight.take_read_until(oldest))

    def _free_settled(
        self, finished: Sequence[tuple[HeldJob, Settlement]], answers: Sequence[bool | BackendError]
    ) -> None:
        """Forget what is settled, and put aside what its queue refused."""
        settled: list[HeldJob] = []
        refused: list[tuple[HeldJob, Settlement]] = []
        for (job, settlement), answer in zip(finished, answers, strict=True):
            if isinstance(answer, BackendError):
                refused.append((job, settlement))
                continue
            settled.append(job)
            if not answer:
                logger.warning(
                    "job %s of %s was fenced: its lease ended while it ran, and another worker has it",
                    job.delivery.id,
                    job.delivery.queue,
                )
        self._in_flight.free(settled)
        if refused:
            self._in_flight.put_aside(refused)
