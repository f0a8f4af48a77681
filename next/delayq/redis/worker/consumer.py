"""Redis as a child sees it: one named consumer that settles what is finished and takes what is new."""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.backends.protocol import Acked, Delivery, Held, Released, Settlement
from delayq.core.errors import BackendError, CallRefused
from delayq.core.resting import RestingQueues
from delayq.redis.commands import delivery as calls
from delayq.redis.commands.call import Call
from delayq.redis.commands.schedule import LEASE_MS
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.connection.leaf import WokenUp, drive
from delayq.redis.keys import Keys

NOT_SETTLED: Final = CallRefused("the queue gave trouble; settle again later")


class Trip(msgspec.Struct, frozen=True):
    """A trip under way: for each settling call its queue and what it settles, by position; then the read, if any."""

    started: Started[Any]
    settling: list[tuple[str, list[int]]]
    settled: int
    reading: str | None
    limit: int


class RedisConsumer:
    """A Consumer over Redis. `queues` are read in order: a lower one only when the higher ones are empty."""

    def __init__(self, executor: Executor, keys: Keys, queues: Sequence[str], name: str) -> None:
        self.name = name
        self._executor = executor
        self._keys = keys
        self._queues = queues
        self._resting = RestingQueues()

    def open(self) -> float:
        """Create missing groups, and return the shortest lease in seconds."""
        created = drive(self._executor.run_all([calls.create_group(self._keys, queue) for queue in self._queues]))
        for queue, outcome in zip(self._queues, created, strict=True):
            if isinstance(outcome, BackendError) and "BUSYGROUP" not in str(outcome):
                self._resting.rest(queue, outcome)
        leases = drive(self._executor.run_all([calls.read_lease(self._keys, queue) for queue in self._queues]))
        return min(lease if isinstance(lease, int) else LEASE_MS for lease in leases) / 1000

    def begin(self, settled: Sequence[Settlement], limit: int) -> Trip:
        """Send one trip that settles and takes."""
        requests: list[Call[Any]] = []
        settling: list[tuple[str, list[int]]] = []
        for (kind, queue), positions in _grouped(settled).items():
            if not self._resting.is_resting(queue):
                requests.append(_settling(self._keys, kind, queue, [settled[n] for n in positions]))
                settling.append((queue, positions))
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
        for (queue, positions), outcome in zip(trip.settling, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                self._resting.rest(queue, outcome)
            else:
                for position, answer in zip(positions, outcome, strict=True):
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
        queues = [queue for queue in self._queues if any(job.queue == queue for job in held)]
        requests = [calls.hand_back(self._keys, queue, [job for job in held if job.queue == queue]) for queue in queues]
        self._resting.values(queues, drive(self._executor.run_all(requests)))

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


def _grouped(settled: Sequence[Settlement]) -> dict[tuple[type, str], list[int]]:
    """Group settlements by kind and queue: the positions of those that one call can settle."""
    groups: dict[tuple[type, str], list[int]] = {}
    for position, settlement in enumerate(settled):
        groups.setdefault((type(settlement), settlement.queue), []).append(position)
    return groups


def _settling(keys: Keys, kind: type, queue: str, rows: Sequence[Any]) -> Call[list[bool]]:
    """Return the call that settles jobs of one kind."""
    if kind is Acked:
        return calls.ack(keys, queue, rows)
    if kind is Released:
        return calls.release(keys, queue, rows)
    return calls.fail(keys, queue, rows)
