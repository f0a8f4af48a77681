"""Pauses for failing queues, so that one damaged queue does not stop the work for other queues."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from delayq.core.errors import BackendError, CallRefused, NodeError
from delayq.core.outages import Outages
from delayq.core.shards import queue_of

T = TypeVar("T")

REST: Final = 1.0


class RestingQueues:
    """Remembers which queues failed, so that callers skip them for one second."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._outages = Outages(clock=clock)

    def rest(self, queue: str, error: Exception) -> None:
        """Log the error of a queue, at most once in 5 s, and let the queue rest for one second."""
        self._outages.tell(f"queue {queue_of(queue)} failed; next try in {REST:g} s", error)
        self._until[queue] = self._clock() + REST

    def rest_unless_away(self, queue: str, error: Exception) -> None:
        """Let a queue rest after an error that affects only this queue. Re-raise an error that affects all queues."""
        if isinstance(error, BackendError) and not isinstance(error, CallRefused | NodeError):
            raise error
        self.rest(queue, error)

    def values(self, queues: Sequence[str], outcomes: Sequence[T | BackendError]) -> list[T]:
        """Return the successful outcomes of calls, one call for each queue. Queues with an error rest."""
        values: list[T] = []
        for queue, outcome in zip(queues, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                self.rest(queue, outcome)
            else:
                values.append(outcome)
        return values

    def is_resting(self, queue: str) -> bool:
        """Return True if the queue failed less than a second ago."""
        return self._until.get(queue, 0.0) > self._clock()

    def awake(self, queues: Iterable[str]) -> list[str]:
        """Return the queues that are not resting, in the same order."""
        if not self._until:
            return list(queues)
        return [queue for queue in queues if not self.is_resting(queue)]
