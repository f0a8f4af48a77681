"""Redis as a child sees it: one named consumer that settles what is finished and takes what is new."""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.backends.protocol import Delivery, Held, Settlement
from delayq.core.errors import BackendError, CallRefused
from delayq.core.options import Options
from delayq.core.resting import RestingQueues
from delayq.redis.commands import delivery as calls
from delayq.redis.commands import upkeep
from delayq.redis.commands.call import Call
from delayq.redis.commands.inspect import server_time_ms
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.connection.leaf import WokenUp, drive
from delayq.redis.keys import Keys
from delayq.redis.worker.grouping import by_queue, cut
from delayq.redis.worker.settle import Settling, settling_calls

NOT_SETTLED: Final = CallRefused("the queue gave trouble; settle again later")


class Trip(msgspec.Struct, frozen=True):
    """A trip under way: the settling calls, then the read, if any."""

    started: Started[Any]
    settling: list[Settling]
    settled: int
    reading: str | None
    limit: int


class RedisConsumer:
    """A Consumer over Redis. `queues` are read in order: a lower one only when the higher ones are empty."""

    def __init__(self, executor: Executor, keys: Keys, queues: Sequence[str], options: Options, *, name: str) -> None:
        self.name = name
        self._executor = executor
        self._keys = keys
        self._queues = queues
        self._options = options
        self._server_ahead_ms = 0
        self._resting = RestingQueues()

    def open(self) -> float:
        """Give each queue what it lacks, record this consumer, and return the shortest lease in seconds."""
        tidy = [upkeep.tidy(self._keys, queue, lease_ms=self._options.lease_ms) for queue in self._queues]
        self._resting.values(self._queues, drive(self._executor.run_all(tidy)))
        queues = self._resting.awake(self._queues)
        renew = [calls.renew(self._keys, queue, self.name, []) for queue in queues]
        renewed = self._resting.values(queues, drive(self._executor.run_all(renew)))
        server_ms = drive(self._executor.run(server_time_ms()))
        self._server_ahead_ms = server_ms - time.time_ns() // 1_000_000
        return min((reply.lease_ms for reply in renewed), default=self._options.lease_ms) / 1000

    def now_ms(self) -> int:
        """Return the time of the server, as it was when the consumer was opened, and went on since."""
        return time.time_ns() // 1_000_000 + self._server_ahead_ms

    def begin(self, settled: Sequence[Settlement], limit: int) -> Trip:
        """Send one trip that settles and takes."""
        settling = [one for one in settling_calls(self._keys, settled) if not self._resting.is_resting(one.queue)]
        requests: list[Call[Any]] = [one.call for one in settling]
        queues = self._resting.awake(self._queues)
        reading = queues[0] if limit and queues else None
        if reading:
            requests.append(calls.read_new(self._keys, reading, self.name, limit))
        return Trip(drive(self._executor.start(requests)), settling, len(settled), reading, limit)

    def complete(self, trip: Trip) -> tuple[list[bool | BackendError], list[Delivery]]:
        """Read the answers of a trip. Only a queue that brings less than the limit costs a trip for the next one."""
        outcomes = drive(self._executor.finish(trip.started))
        taken: list[Delivery] = []
        if trip.reading:
            taken = self._taken(trip.reading, outcomes.pop())
            lower = self._queues[self._queues.index(trip.reading) + 1 :]
            taken += self._take(lower, trip.limit - len(taken))

        answers: list[bool | BackendError] = [NOT_SETTLED] * trip.settled
        for settling, outcome in zip(trip.settling, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                self._resting.rest(settling.queue, outcome)
            else:
                for position, answer in zip(settling.positions, outcome, strict=True):
                    answers[position] = answer
        return answers, taken

    def wait(self, timeout: float) -> list[Delivery]:
        """Wait for one new job of any queue. A signal ends the wait; what came meanwhile is read again then."""
        queues = self._resting.awake(self._queues)
        if not queues:
            time.sleep(timeout)
            return []
        call = calls.wait_new(self._keys, queues, self.name, int(timeout * 1000))
        try:
            (outcome,) = drive(self._executor.run_all([call], block=timeout))
        except WokenUp:
            return self.pending()
        if isinstance(outcome, BackendError):
            return self._take(queues, 1)  # one by one, because the error does not say which queue it is
        return outcome

    def pending(self) -> list[Delivery]:
        """Read again what this consumer has been given and has not settled."""
        queues = self._resting.awake(self._queues)
        requests = [calls.read_pending(self._keys, queue, self.name) for queue in queues]
        replies = self._resting.values(queues, drive(self._executor.run_all(requests)))
        return [delivery for reply in replies for delivery in reply]

    def hand_back(self, held: Sequence[Held]) -> None:
        """Give back jobs that were not started. What a queue refuses stays with this consumer, as pending."""
        pages = [(queue, page) for queue, jobs in by_queue(held).items() for page in cut(jobs, calls.MAX_HAND_BACK)]
        requests = [calls.hand_back(self._keys, queue, page) for queue, page in pages]
        self._resting.values([queue for queue, _ in pages], drive(self._executor.run_all(requests)))

    def _take(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        """Take up to `limit` new jobs, from one queue after the other."""
        taken: list[Delivery] = []
        for queue in self._resting.awake(queues):
            if len(taken) < limit:
                call = calls.read_new(self._keys, queue, self.name, limit - len(taken))
                taken += self._taken(queue, drive(self._executor.run_all([call]))[0])
        return taken

    def _taken(self, queue: str, outcome: list[Delivery] | BackendError) -> list[Delivery]:
        """Return what a read brought: nothing from a queue that refused it."""
        return [job for jobs in self._resting.values([queue], [outcome]) for job in jobs]
