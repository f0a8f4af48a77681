"""Pauses for failing queues, so that one damaged queue does not stop the work for other queues."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from delayq.core.errors import BackendError, CallRefused, LoginRefused, NodeError
from delayq.core.outages import Outages
from delayq.core.shards import queue_of

T = TypeVar("T")

NODE: Final = "node"

REST: Final = 1.0
"""How long a queue rests after an error, in seconds."""

NODE_REST: Final = 2.0
"""How long workers and loops send nothing to a node of a cluster that did not answer, in seconds."""

QUIET: Final = 5.0
"""An error has ended if a call succeeds at least this many seconds after the last failed call.

An earlier success is not enough: one kind of call may fail while another succeeds, for example if only one key of the
queue is damaged.
"""


class RestingQueues:
    """Remembers which queues failed, so that callers skip them for a while.

    `outages`: logs the errors; the loops of a process share this object, so that each error is logged once. None = not
    shared. `seconds`: how long a queue rests after a failed call.
    """

    def __init__(
        self,
        *,
        outages: Outages | None = None,
        seconds: float = REST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self._failing: dict[str, dict[str, float]] = {}
        self._refused: set[str] = set()
        self.failures = self.answers = 0
        """Number of failed calls, and number of calls that the server has answered, also with an error."""
        self._outages = outages or Outages(clock=clock)

    def rest(self, queue: str, error: Exception, *, is_repeated: bool = True) -> None:
        """Log the error of a queue, at most once in 5 s, and let the queue rest.

        If a node of a cluster failed, log one line for all queues of this node. Calls that were not sent because the
        node failed a moment ago are not logged.

        `is_repeated`: False = the failed call is made only once, so no later call shows whether its error has ended.
        Then no end is logged. A refused login is not logged here, because the next call of the process raises it.
        """
        now = self._clock()
        what, plan = f"queue {queue_of(queue)} failed", f"; next try in {self._seconds:g} s" if self._seconds else ""
        if isinstance(error, NodeError) and error.node:
            what, plan = f"{NODE} {error.node} failed", f"; left alone for up to {NODE_REST:g} s"
        is_skipped = isinstance(error, NodeError) and error.was_skipped and self._outages.is_known(what)
        if not is_skipped and not isinstance(error, LoginRefused):
            self._outages.tell(what, error, plan=plan, source=self)
        if is_repeated or isinstance(error, NodeError):
            self._failing.setdefault(what, {})[queue] = now
        self._until[queue] = now + self._seconds
        self._refused.add(queue)
        self.failures += 1
        if not isinstance(error, NodeError | LoginRefused):
            self.answers += 1

    def worked(self, queues: Iterable[str]) -> None:
        """Record successful calls.

        Log the end of an error if the last failed call was at least QUIET seconds ago. An error of a queue has ended
        when calls for all shards of the queue succeed again. An error of a node has ended when the calls for one queue
        of this node succeed again.
        """
        self.answers += 1
        if self._refused:
            queues = list(queues)
            self._refused.difference_update(queues)
        if not self._failing:
            return
        until = self._clock() - QUIET
        for queue in queues:
            for what, failed_at in list(self._failing.items()):
                if failed_at.get(queue, math.inf) > until:
                    continue
                del failed_at[queue]
                if not failed_at or what.startswith(NODE):
                    del self._failing[what]
                    self._outages.is_over(what, source=self)

    def listed(self, *, is_complete: bool) -> None:
        """Record that the list of queues was read. `is_complete`: False = the server refused to return it."""
        if is_complete:
            self.answers += 1

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
                self.worked([queue])
        return values

    def have_refused(self) -> bool:
        """Return True if the last call of one of the queues failed."""
        return bool(self._refused)

    def is_resting(self, queue: str) -> bool:
        """Return True if the queue rests after a failed call."""
        return self._until.get(queue, 0.0) > self._clock()

    def awake(self, queues: Iterable[str]) -> list[str]:
        """Return the queues that are not resting, in the same order."""
        if not self._until:
            return list(queues)
        return [queue for queue in queues if not self.is_resting(queue)]
