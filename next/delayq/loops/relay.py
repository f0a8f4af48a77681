"""The relay: sends what follows the ends of jobs."""

import time
from collections.abc import Callable
from typing import Final

from delayq.backends.protocol import QueueKeeper
from delayq.core.resting import RestingQueues

EVERY: Final = 10.0
"""Seconds between two looks at all queues. In between the mover names queues whose outbox holds something."""


class Relay:
    """Follows up in the queues of `outboxes`, which the mover fills, and now and then in all."""

    def __init__(self, keeper: QueueKeeper, outboxes: set[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper = keeper
        self._outboxes = outboxes
        self._clock = clock
        self._all_at = clock() + EVERY
        self._resting = RestingQueues(clock=clock)
        self.relayed = 0

    def step(self, hinted: set[str]) -> float:
        """Follow up in every queue whose outbox holds something, and return the seconds until the next look at all."""
        if self._clock() >= self._all_at:
            self._outboxes.update(self._keeper.queues())
            self._all_at = self._clock() + EVERY
        for queue in self._resting.awake(sorted(self._outboxes)):
            self._outboxes.discard(queue)
            try:
                self.relayed += self._keeper.follow_up(queue)
            except Exception as error:
                self._resting.rest_unless_away(queue, error)
        return max(self._all_at - self._clock(), 0.0)
