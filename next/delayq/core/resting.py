"""Queues that gave trouble. One damaged queue never stops another."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from delayq.core.errors import BackendError, CallRefused
from delayq.core.outages import Outages

T = TypeVar("T")

REST: Final = 1.0


class RestingQueues:
    """Remembers which queues gave trouble, so that each is left alone for a second."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._outages = Outages(clock=clock)

    def rest(self, queue: str, error: Exception) -> None:
        """Log the trouble of a queue, every 5 s at most, and leave the queue alone from now on."""
        self._outages.tell(f"queue {queue} gives trouble and is left alone for {REST:g} s", error)
        self._until[queue] = self._clock() + REST

    def rest_unless_away(self, queue: str, error: Exception) -> None:
        """Leave a queue alone after any trouble. Raise an error by which the server is away: all queues have it."""
        if isinstance(error, BackendError) and not isinstance(error, CallRefused):
            raise error
        self.rest(queue, error)

    def values(self, queues: Sequence[str], outcomes: Sequence[T | BackendError]) -> list[T]:
        """Return the values among the outcomes of calls, one for each queue; the queues of the errors rest."""
        values: list[T] = []
        for queue, outcome in zip(queues, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                self.rest(queue, outcome)
            else:
                values.append(outcome)
        return values

    def is_resting(self, queue: str) -> bool:
        """Whether the queue gave trouble less than a second ago."""
        return self._until.get(queue, 0.0) > self._clock()

    def awake(self, queues: Iterable[str]) -> list[str]:
        """List those of the queues that are not resting, in their order."""
        if not self._until:
            return list(queues)
        return [queue for queue in queues if not self.is_resting(queue)]
