"""Redis as supervisors, movers and janitors see it."""

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from delayq.backends.protocol import Acked, Delivery, Held, Promoted, Reclaimed, Renewed
from delayq.core.errors import CallRefused
from delayq.core.resting import RestingQueues
from delayq.redis.commands import delivery as calls
from delayq.redis.commands.call import Call
from delayq.redis.commands.schedule import list_queues
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys

T = TypeVar("T")

logger: Final = logging.getLogger("delayq.worker")


class RedisKeeper:
    """A LeaseKeeper and a QueueKeeper over Redis. `queues` are those that the worker was told to serve."""

    def __init__(self, executor: Executor, keys: Keys, queues: Sequence[str] = ()) -> None:
        self._executor = executor
        self._keys = keys
        self._queues = queues
        self._resting = RestingQueues()

    def renew(self, consumer: str, held: Sequence[Held]) -> Renewed:
        """Begin the leases of these jobs anew."""
        replies = self._run(
            [
                (queue, calls.renew(self._keys, queue, consumer, [job for job in held if job.queue == queue]))
                for queue in self._resting.awake(self._queues)
            ]
        )
        cancelled = [job_id for reply in replies for job_id in reply.cancelled]
        return Renewed(sum(reply.more for reply in replies), cancelled)

    def pending(self, consumer: str) -> list[Delivery]:
        """Read what a consumer has been given and has not settled."""
        replies = self._run([(queue, calls.read_pending(self._keys, queue, consumer)) for queue in self._queues])
        return [delivery for reply in replies for delivery in reply]

    def settle_after_death(self, done: Sequence[Held], unstarted: Sequence[Held], running: Sequence[Held]) -> None:
        """Settle for a dead child, in one trip."""
        requests: list[tuple[str, Call[Any]]] = []
        for queue in self._queues:
            of_queue = [[job for job in jobs if job.queue == queue] for jobs in (done, unstarted, running)]
            if of_queue[0]:
                acks = [Acked(job.queue, job.id, job.entry) for job in of_queue[0]]
                requests.append((queue, calls.ack(self._keys, queue, acks)))
            if of_queue[1]:
                requests.append((queue, calls.hand_back(self._keys, queue, of_queue[1])))
            if of_queue[2]:
                requests.append((queue, calls.reclaim(self._keys, queue, of_queue[2])))
        self._run(requests)

    def queues(self) -> list[str]:
        """List the queues to serve: those that are listed, and those that the worker was told to serve."""
        try:
            listed = drive(self._executor.run(list_queues(self._keys)))
        except CallRefused:
            logger.exception("the list of queues cannot be read")
            listed = []
        return sorted({*listed, *self._queues})

    def promote(self, queue: str) -> Promoted:
        """Make the jobs ready that are due."""
        return drive(self._executor.run(calls.promote(self._keys, queue)))

    def reclaim(self, queue: str) -> Reclaimed:
        """Take back the jobs whose lease is over."""
        return drive(self._executor.run(calls.reclaim(self._keys, queue)))

    def _run(self, requests: Sequence[tuple[str, Call[T]]]) -> list[T]:
        """Send calls, each with its queue, in one trip, and return the values. What a queue refuses is left out."""
        outcomes = drive(self._executor.run_all([call for _, call in requests]))
        return self._resting.values([queue for queue, _ in requests], outcomes)
