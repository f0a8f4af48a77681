"""The janitor: takes back what vanished workers hold, and keeps queues whole."""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from delayq.backends.protocol import QueueKeeper
from delayq.core.resting import RestingQueues

logger: Final = logging.getLogger("delayq.worker")


class Janitor:
    """Reclaims in all queues every `reclaim_every` seconds, and repairs them every `repair_every` seconds.

    After a gap of more than half a lease `reclaim` trusts no lease until a whole one has passed. So it is called every
    third of the shortest lease, which its answers bring, when that is less than `reclaim_every`.
    """

    def __init__(
        self,
        keeper: QueueKeeper,
        *,
        reclaim_every: float,
        repair_every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._reclaim_every = reclaim_every
        self._repair_every = repair_every
        self._clock = clock
        self._reclaim_at = self._repair_at = clock()
        self._resting = RestingQueues(clock=clock)
        self.reclaimed = 0
        self._shortest_lease = math.inf

    def step(self, hinted: set[str]) -> float:
        """Do what is due in every queue, and return the seconds until the next time. Hints do not matter."""
        now = self._clock()
        reclaims, repairs = now >= self._reclaim_at, now >= self._repair_at
        if reclaims:
            self._shortest_lease = math.inf
        if reclaims or repairs:
            for queue in self._resting.awake(self._keeper.queues()):
                try:
                    self._tend(queue, reclaims=reclaims, repairs=repairs)
                except Exception as error:
                    self._resting.rest_unless_away(queue, error)
        if reclaims:
            self._reclaim_at = now + min(self._reclaim_every, self._shortest_lease / 3)
        if repairs:
            self._repair_at = now + self._repair_every
        return max(min(self._reclaim_at, self._repair_at) - self._clock(), 0.0)

    def _tend(self, queue: str, *, reclaims: bool, repairs: bool) -> None:
        if repairs:
            self._keeper.repair(queue)
        is_more = reclaims
        while is_more:
            answer = self._keeper.reclaim(queue)
            self.reclaimed += answer.reclaimed + answer.failed
            if answer.reclaimed:
                logger.warning("queue %s: %d jobs of silent workers are taken back", queue, answer.reclaimed)
            if answer.failed:
                logger.error(
                    "queue %s: %d jobs failed, because too many of their workers vanished", queue, answer.failed
                )
            self._shortest_lease = min(self._shortest_lease, answer.lease_ms / 1000)
            is_more = answer.more == 1
