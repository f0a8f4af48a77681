"""The janitor: redelivers the jobs of vanished workers, and repairs and cleans up queues."""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from delayq.backends.protocol import QueueKeeper
from delayq.core.resting import RestingQueues
from delayq.core.shards import queue_of

logger: Final = logging.getLogger("delayq.worker")


class Janitor:
    """Calls `reclaim` for all queues every `reclaim_every` seconds, and `repair` every `repair_every` seconds.

    After an error, `repair` is called again together with the next `reclaim`.

    If the last call of `reclaim` was more than half a lease ago, `reclaim` does nothing for one lease, because live
    workers may not have been able to renew their leases. To prevent this gap, a third of the shortest lease replaces a
    longer `reclaim_every`. The janitor knows the leases, because `reclaim` returns the lease of a queue.
    """

    def __init__(
        self,
        keeper: QueueKeeper,
        *,
        reclaim_every: float,
        repair_every: float,
        resting: RestingQueues | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._reclaim_every = reclaim_every
        self._repair_every = repair_every
        self._clock = clock
        self._reclaim_at = self._repair_at = clock()
        self.resting = resting or RestingQueues(clock=clock)
        self._unrepaired: set[str] = set()
        self.reclaimed = 0
        self._shortest_lease = math.inf

    def has_work(self) -> bool:
        """Return False, because other loops never ask for a step of the janitor."""
        return False

    def step(self, hinted: set[str]) -> float:
        """Reclaim and repair all queues, each if its interval is over. Return the seconds until the next step.

        Notifications (`hinted`) are ignored.
        """
        now = self._clock()
        reclaims, repairs = now >= self._reclaim_at, now >= self._repair_at
        if reclaims:
            self._shortest_lease = math.inf
        if reclaims or repairs:
            queues = self._keeper.queues()
            self.resting.listed(is_complete=self._keeper.has_all_queues)
            if repairs:
                self._unrepaired = set(queues)
            for queue in self.resting.awake(queues):
                try:
                    self._tend(queue, reclaims=reclaims)
                    self.resting.worked([queue])
                except Exception as error:
                    self.resting.rest_unless_away(queue, error)
        if reclaims:
            self._reclaim_at = now + min(self._reclaim_every, self._shortest_lease / 3)
        if repairs:
            self._repair_at = now + self._repair_every
        return max(min(self._reclaim_at, self._repair_at) - self._clock(), 0.0)

    def _tend(self, queue: str, *, reclaims: bool) -> None:
        if queue in self._unrepaired:
            self._keeper.repair(queue)
            self._unrepaired.discard(queue)
        is_more = reclaims
        while is_more:
            answer = self._keeper.reclaim(queue)
            self.reclaimed += answer.reclaimed + answer.failed
            if answer.reclaimed:
                logger.warning(
                    "queue %s: jobs redelivered because their worker vanished: %d", queue_of(queue), answer.reclaimed
                )
            if answer.failed:
                logger.error(
                    "queue %s: jobs failed because their workers vanished too many times: %d",
                    queue_of(queue),
                    answer.failed,
                )
            self._shortest_lease = min(self._shortest_lease, answer.lease_ms / 1000)
            is_more = answer.more == 1
