"""The relay: sends the follow-up jobs of ended jobs, such as the next job of a chain."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from delayq.backends.protocol import QueueKeeper
from delayq.core.resting import REST, RestingQueues

EVERY: Final = 10.0
"""Seconds between two checks of all outboxes (streams with the records of ended jobs). In between, the mover reports
queues whose outbox has records."""


class Relay:
    """Sends the follow-up jobs of the queues in `outboxes`, a set that the mover fills.

    Every 10 s, the relay checks the outboxes of all queues. `undisturbed`: returns a context manager that keeps signals
    from ending the process while the relay handles an outbox. Otherwise, the outbox could stay reserved for a relay
    that has ended.
    """

    def __init__(
        self,
        keeper: QueueKeeper,
        outboxes: set[str],
        *,
        undisturbed: Callable[[], AbstractContextManager[object]] = nullcontext,
        resting: RestingQueues | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._outboxes = outboxes
        self._undisturbed = undisturbed
        self._clock = clock
        self._all_at = clock() + EVERY
        self._again_at: dict[str, float] = {}
        self.resting = resting or RestingQueues(clock=clock)
        self.relayed = 0

    def has_work(self) -> bool:
        """Return True if the mover has found records in an outbox that does not rest after an error."""
        return bool(self.resting.awake(self._outboxes))

    def step(self, hinted: set[str]) -> float:
        """Send the follow-up jobs of all outboxes that may have records.

        Return the seconds until the next step.
        """
        now = self._clock()
        if now >= self._all_at:
            self._outboxes.update(self._keeper.queues())
            self._all_at = now + EVERY
            self.resting.listed(is_complete=self._keeper.has_all_queues)
        self._outboxes.update(queue for queue, again_at in self._again_at.items() if again_at <= now)
        for queue in self.resting.awake(sorted(self._outboxes)):
            self._follow_up(queue)
        return max(min([self._all_at, *self._again_at.values()]) - self._clock(), 0.0)

    def run_once(self) -> None:
        """Send the follow-up jobs of all outboxes that have records, each outbox once from its start to its end."""
        for queue in sorted(self._outboxes):
            while self._follow_up(queue):
                pass

    def _follow_up(self, queue: str) -> bool:
        """Handle one page of the records of an outbox. Return True if the next page can be handled at once."""
        self._outboxes.discard(queue)
        self._again_at[queue] = self._clock()  # so that the next step calls the queue again if an error is raised
        try:
            with self._undisturbed():
                answer = self._keeper.follow_up(queue)
        except Exception as error:
            self.resting.rest_unless_away(queue, error)
            self._again_at[queue] = self._clock() + REST
            return False
        self.relayed += answer.relayed
        self._again_at.pop(queue)
        if answer.again_in is not None:
            self._again_at[queue] = self._clock() + answer.again_in
        if answer.error is not None:
            self.resting.rest(queue, answer.error)
        else:
            self.resting.worked([queue])
        return answer.again_in == 0.0
