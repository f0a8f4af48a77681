"""Access to Redis for a supervisor: it renews the leases of its children, and settles the jobs of dead children."""

from collections.abc import Sequence
from typing import Any, TypeVar

from delayq.backends.values import Acked, Delivery, DeliveryRef, Renewed, SettleAnswer, Settlement, Stopped
from delayq.core.errors import BackendError
from delayq.core.options import Options
from delayq.core.resting import RestingQueues
from delayq.redis.calls import delivery as calls
from delayq.redis.calls.call import Call
from delayq.redis.calls.inspect import server_time_ms
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys
from delayq.redis.server_clock import ServerClock
from delayq.redis.shard_counts import ShardCounts
from delayq.redis.worker.grouping import by_queue, cut
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.opening import open_queues
from delayq.redis.worker.pending import read_all_pending
from delayq.redis.worker.settle import settling_calls
from delayq.redis.worker.switches import read_restart

T = TypeVar("T")


class RedisLeaseKeeper:
    """Implements the protocol LeaseKeeper with Redis.

    If a call for one queue fails, the error is logged and not raised, and the queue is missing in the result.
    `stop_hints`: notifications about jobs that a cancel asked to stop.
    """

    def __init__(
        self, executor: Executor, keys: Keys, queues: Sequence[str], options: Options, stop_hints: Hints
    ) -> None:
        self._executor = executor
        self._keys = keys
        self._queues = list(queues)
        self._options = options
        self._stop_hints = stop_hints
        self._resting = RestingQueues()
        self._clock = ServerClock()
        self._restart_ms = 0

    def open(self) -> float:
        """Create missing parts of the queues, and return the shortest lease, in seconds."""
        shards = drive(ShardCounts(self._executor, self._keys).read_all(self._queues))
        self._queues = [shard for queue in self._queues for shard in shards[queue]]
        lease = open_queues(
            self._executor,
            self._keys,
            self._queues,
            self._options,
            consumer="",
            resting=self._resting,
            clock=self._clock,
        )
        (restart_ms,) = drive(self._executor.run_all([read_restart(self._keys)]))
        self._restart_ms = 0 if isinstance(restart_ms, BackendError) else restart_ms
        return lease

    def queues(self) -> list[str]:
        """Return the shards of the queues of the worker."""
        return self._queues

    def now_ms(self) -> int:
        """Return the time of the server in epoch ms, without a call to it."""
        return self._clock.now_ms()

    def restart_ms(self) -> int:
        """Return the time of the last restart request before `open`, in epoch ms; 0 = none, or it could not be read."""
        return self._restart_ms

    def renew(self, consumer: str, held: Sequence[DeliveryRef]) -> Renewed:
        """Renew the leases of these jobs of a consumer. Queues that rest after a refusal are left out."""
        of_queue = by_queue(held)
        replies = self._run(
            [
                (queue, calls.renew(self._keys, queue, consumer, of_queue.get(queue, [])))
                for queue in self._resting.awake(self._queues)
            ]
        )
        cancelled = [job for reply in replies for job in reply.cancelled]
        lease_ms = min((reply.lease_ms for reply in replies), default=self._options.lease_ms)
        return Renewed(lease_ms, sum(reply.more for reply in replies), cancelled)

    def pending(self, consumer: str) -> list[Delivery]:
        """Read the jobs that were delivered to a consumer and are not settled."""
        return read_all_pending(self._executor, self._keys, self._queues, consumer, resting=self._resting)

    def stop_requests(self) -> list[tuple[str, str]]:
        """Return queue and id of each job that a cancel asked to stop since the last call, if a notification came."""
        return self._stop_hints.wait(0)

    def settle_after_death(
        self,
        done: Sequence[DeliveryRef],
        unstarted: Sequence[DeliveryRef],
        vanished: Sequence[DeliveryRef],
        decided: Sequence[Settlement],
    ) -> list[DeliveryRef]:
        """Settle the jobs of a dead child. Return the `vanished` jobs that failed because of too many recoveries.

        `done` jobs are acknowledged, `unstarted` jobs are handed back, and `decided` settlements are carried out.
        `vanished` jobs ran when the child died. Each of them counts one recovery and is delivered again, or fails. A
        call may handle only a part of its jobs; `pending` returns the others.
        """
        requests: list[tuple[str, Call[Any]]] = []
        for queue, jobs in by_queue(done).items():
            # The supervisor has not read the envelopes of these jobs, so the script must look for follow-up jobs.
            acks = [Acked(queue, job.id, job.entry, is_followed=True) for job in jobs]
            requests += [(queue, calls.ack(self._keys, queue, page)) for page in cut(acks)]
        for queue, jobs in by_queue(unstarted).items():
            requests += [(queue, calls.hand_back(self._keys, queue, page)) for page in cut(jobs, calls.MAX_HAND_BACK)]
        pages = [(queue, page) for queue, jobs in by_queue(vanished).items() for page in cut(jobs)]
        most = self._options.max_recoveries
        recoveries = [(queue, calls.recover(self._keys, queue, page, max_recoveries=most)) for queue, page in pages]
        outcomes = self._run_each([*requests, *recoveries])[len(requests) :]
        self._settle(decided)
        return [
            job
            for (_, page), outcome in zip(pages, outcomes, strict=True)
            if not isinstance(outcome, BackendError)
            for job, answer in zip(page, outcome, strict=False)
            if answer == calls.FAILED
        ]

    def _settle(self, settled: Sequence[Settlement]) -> None:
        """Carry out settlements. If a cancel asked a job to stop, settle it again, as stopped."""
        settling = settling_calls(self._keys, settled)
        outcomes = self._run_each([(one.queue, one.call) for one in settling])
        stopped = [
            settled[position]
            for one, answers in zip(settling, outcomes, strict=True)
            if not isinstance(answers, BackendError)
            for position, answer in zip(one.positions, answers, strict=True)
            if answer == SettleAnswer.STOP_ASKED
        ]
        if stopped:
            self._settle([Stopped(job.queue, job.id, job.entry) for job in stopped])

    def _run(self, requests: Sequence[tuple[str, Call[T]]]) -> list[T]:
        """Send calls, each with its queue, in one request. Return their values, without refused calls."""
        return [outcome for outcome in self._run_each(requests) if not isinstance(outcome, BackendError)]

    def _run_each(self, requests: Sequence[tuple[str, Call[T]]]) -> list[T | BackendError]:
        """Send calls, each with its queue, in one request. Return their outcomes, and log refused calls.

        If it is due, the same request reads the time of the server.
        """
        time_calls: list[Call[Any]] = [server_time_ms()] if self._clock.is_due() else []
        try:
            outcomes = drive(self._executor.run_all([*time_calls, *[call for _, call in requests]]))
        except BackendError:
            self._clock.expire()
            raise
        if time_calls and not isinstance(outcomes[0], BackendError):
            self._clock.set(outcomes[0])
        outcomes = outcomes[len(time_calls) :]
        self._resting.values([queue for queue, _ in requests], outcomes)
        return outcomes
