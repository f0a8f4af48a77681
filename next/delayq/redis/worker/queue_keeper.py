"""Access to Redis for the three loops: the mover, the janitor and the relay."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.backends.values import Promoted, Reclaimed, Relayed, Repaired
from delayq.core.errors import BackendError, BackendFull, CallRefused, NodeError
from delayq.core.options import Options
from delayq.core.outages import Outages
from delayq.core.shards import queue_of, shard_names
from delayq.redis import repair
from delayq.redis.calls import delivery as calls
from delayq.redis.calls.inspect import count_jobs, list_queues
from delayq.redis.calls.queues import list_queue
from delayq.redis.calls.shards import restore_shard_count
from delayq.redis.calls.upkeep import record_activity
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys
from delayq.redis.relay import OutboxRelay
from delayq.redis.shard_counts import ShardCounts

logger: Final = logging.getLogger("delayq.loops")

LIST_EVERY: Final = 4.0
"""Shortest interval between two reads of the list of queues, in seconds."""

NO_LIST: Final = "the list of queues cannot be read"


class RedisQueueKeeper:
    """Implements the protocol QueueKeeper with Redis.

    `queues`: the queues of the worker, which are served even if they are not in the list of queues. `name`: the
    consumer name of the relay.
    """

    def __init__(
        self,
        executor: Executor,
        keys: Keys,
        options: Options,
        *,
        name: str,
        queues: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._queues = queues
        self._clock = clock
        self._outages = Outages(clock=clock)
        self._counts = ShardCounts(executor, keys)
        self._relay = OutboxRelay(executor, keys, options, self._counts, name=name, clock=clock)
        self._listed: list[str] = []
        self._list_at = clock()
        self.has_all_queues = True
        self._counted: dict[str, int] = {}
        self._recorded: dict[str, int] = {}

    def queues(self) -> list[str]:
        """Return the shards of the queues to serve.

        The queues to serve are the queues on the list and the queues of the worker. The list is read at most every 4 s.
        If Redis refuses to return the list, only the queues of the worker are served. If the node with the list does
        not answer, the last list stays valid.
        """
        if self._clock() >= self._list_at:
            self._listed = self._list()
            self._list_at = self._clock() + LIST_EVERY
        return [shard for queue in self._listed for shard in shard_names(queue, self._counts.known(queue))]

    def _list(self) -> list[str]:
        """Read the list of queues, and the numbers of shards of new queues. `promote` keeps these numbers current."""
        before = self._listed
        (listed,) = drive(self._executor.run_all([list_queues(self._keys)]))
        self.has_all_queues = not isinstance(listed, BackendError)
        if isinstance(listed, BackendError):
            if not isinstance(listed, NodeError | CallRefused):
                raise listed
            self._outages.tell(NO_LIST, listed)
            if before and isinstance(listed, NodeError):
                return before
            listed = []
        else:
            self._outages.is_over(NO_LIST)
            self._list_own(listed)
        queues = sorted({*listed, *self._queues})
        new = [queue for queue in queues if queue not in before]
        if new:
            drive(self._counts.read_all(new))
        return queues

    def _list_own(self, listed: Sequence[str]) -> None:
        """If a queue of the worker has jobs and is not on the list, add the queue to the list.

        For example, Redis lost its data after a producer had added its queue to the list, and the producer then sent a
        job without adding the queue again.
        """
        missing = [queue for queue in self._queues if queue not in listed]
        if not missing:
            return
        counts = drive(self._executor.run_all([count_jobs(self._keys, queue) for queue in missing]))
        held = [queue for queue, count in zip(missing, counts, strict=True) if count and isinstance(count, int)]
        drive(self._executor.run_all([list_queue(self._keys, queue) for queue in held]))

    def promote(self, queue: str) -> Promoted:
        """Make up to 500 due jobs ready. For the first shard of a queue, remember the returned number of shards."""
        call = calls.promote(self._keys, queue, high_water=self._options.high_water)
        promoted = drive(self._executor.run(call))
        if queue == queue_of(queue):
            self._counts.note(queue, promoted.shards)
        return promoted

    def reclaim(self, queue: str) -> Reclaimed:
        """Take back up to 250 jobs whose lease has expired."""
        call = calls.reclaim(self._keys, queue, max_recoveries=self._options.max_recoveries)
        return drive(self._executor.run(call))

    def repair(self, queue: str) -> Repaired:
        """Settle jobs that plain consumers acknowledged, delete jobs whose retention is over, and repair damage.

        If the counters of the queue have changed, add their growth to its history.
        """
        repaired = drive(repair.repair_queue(self._executor, self._keys, queue, self._options, self._counted))
        if queue != queue_of(queue):
            drive(self._executor.run(restore_shard_count(self._keys, queue, self._counts.known(queue_of(queue)))))
        if self._recorded.get(queue) != self._counted[queue]:
            self._record(queue)
        return repaired

    def _record(self, queue: str) -> None:
        """Add the growth of the counters of a queue to its history. If Redis refuses this, log it and continue."""
        try:
            drive(self._executor.run(record_activity(self._keys, queue)))
            self._recorded[queue] = self._counted[queue]
        except (CallRefused, BackendFull) as error:
            logger.warning("the history of the queue %s cannot be written: %s", queue, error)

    def follow_up(self, queue: str) -> Relayed:
        """Send the follow-up jobs for one page of the outbox of a queue, which has the records of ended jobs."""
        return drive(self._relay.relay(queue))
