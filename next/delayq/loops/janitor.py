"""The janitor: takes back what vanished workers hold."""

import time
from collections.abc import Callable

from delayq.backends.protocol import QueueKeeper
from delayq.core.errors import CallRefused
from delayq.core.resting import RestingQueues


class Janitor:
    """Reclaims in all queues, every `every` seconds.

    `every` must be at most half a lease: after a longer gap `reclaim` trusts no lease until a whole one has passed.
    """

    def __init__(self, keeper: QueueKeeper, *, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper = keeper
        self._every = every
        self._clock = clock
        self._next_at = clock()
        self._resting = RestingQueues(clock=clock)
        self.reclaimed = 0

    def step(self, hinted: set[str]) -> float:
        """Reclaim in every queue when it is time, and return the seconds until the next time. Hints do not matter."""
        now = self._clock()
        if now >= self._next_at:
            for queue in self._resting.awake(self._keeper.queues()):
                self._reclaim(queue)
            self._next_at = now + self._every
        return max(self._next_at - self._clock(), 0.0)

    def _reclaim(self, queue: str) -> None:
        try:
            answer = self._keeper.reclaim(queue)
        except CallRefused as error:
            self._resting.rest(queue, error)
        else:
            self.reclaimed += answer.reclaimed + answer.failed
