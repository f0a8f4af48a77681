"""The mover: makes scheduled jobs ready when they are due.

The mover computes how long to wait, and its process sleeps for that time. The mover does not wait in a blocking Redis
command, because such a command can return up to 100 ms late. The wait ends at the first of these events:

* the next due time, which `promote` returns
* a notification about a new or changed job
* the end of one second, or of five seconds while the process is subscribed to notifications
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from delayq.backends.protocol import QueueKeeper
from delayq.core.resting import REST, RestingQueues
from delayq.core.shards import queue_of

logger: Final = logging.getLogger("delayq.loops")

LONGEST_SLEEP: Final = 5.0
LONGEST_WITHOUT_HINTS: Final = 1.0
"""Longest sleeps, in seconds: while the process is subscribed to notifications, and without a subscription."""
QUEUES_EVERY: Final = 5.0
"""Seconds between two reads of the list of queues."""
ROUNDS: Final = 20
"""Maximum number of `promote` calls for one queue before the other queues get their turn."""


class Mover:
    """Promotes the jobs of all queues."""

    def __init__(
        self,
        keeper: QueueKeeper,
        hears: Callable[[], bool],
        *,
        resting: RestingQueues | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hears` returns True while the process is subscribed to notifications."""
        self._keeper = keeper
        self._hears = hears
        self._clock = clock
        self._due: dict[str, float] = {}
        self._list_at = clock()
        self.resting = resting or RestingQueues(clock=clock)
        self.promoted = 0
        self.lost = 0
        self.outboxes: set[str] = set()
        """Queues whose outbox has job-end records for the relay."""

    @property
    def queues(self) -> set[str]:
        """The queues that the mover serves."""
        return set(self._due)

    def has_work(self) -> bool:
        """Return False: unlike the relay, the mover gets no work from other loops."""
        return False

    def step(self, hinted: set[str]) -> float:
        """Promote the due jobs of all queues, and return the seconds until the next step.

        `hinted`: queues for which a notification arrived. They are served even before their next planned promotion,
        unless they rest after an error.
        """
        now = self._clock()
        if now >= self._list_at:
            self._due = {queue: self._due.get(queue, now) for queue in self._keeper.queues()}
            self._list_at = now + QUEUES_EVERY
            self.resting.listed(is_complete=self._keeper.has_all_queues)
        for queue in self.resting.awake(hinted):
            self._due[queue] = now
        for queue, due in self._due.items():
            if due <= now:
                self._due[queue] = self._clock() + self._promote(queue)
        longest = self._longest()
        return min(max(min(self._due.values(), default=now + longest) - self._clock(), 0.0), longest)

    def _promote(self, queue: str) -> float:
        """Promote the due jobs of one queue, and return the seconds until its next promotion."""
        lost = self.lost
        wait = self._promote_all(queue)
        if self.lost > lost:
            count = self.lost - lost
            logger.warning("queue %s: due jobs failed because Redis lost their payloads: %d", queue_of(queue), count)
        return wait

    def _promote_all(self, queue: str) -> float:
        for _ in range(ROUNDS):
            try:
                answer = self._keeper.promote(queue)
            except Exception as error:
                self.resting.rest_unless_away(queue, error)
                return REST
            self.resting.worked([queue])
            self.promoted += answer.promoted
            self.lost += answer.lost
            if answer.owed:
                self.outboxes.add(queue)
            if answer.wait_us < 0:
                return self._longest()
            if answer.wait_us > 0:
                return min(answer.wait_us / 1_000_000, self._longest())
        return 0.0

    def _longest(self) -> float:
        return LONGEST_SLEEP if self._hears() else LONGEST_WITHOUT_HINTS
