"""Which queues a reader leaves out for a while because they gave trouble: one queue keeps nobody from the others."""

from __future__ import annotations

import time

from delayq.core.errors import AWAY, DelayqError

SHUN_S = 1.0
# One on a node of a cluster that is away: a node that hangs takes a while to show it, and the others' queues wait.
APART_S = 2.0


class Shunned:
    """Of one reader. Belongs to its thread."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._away: dict[str, DelayqError] = {}

    def __contains__(self, queue: str) -> bool:
        """Whether it is left out now."""
        return queue in self._until and self._until[queue] > time.monotonic()

    def add(self, queue: str) -> None:
        """Leave it out from now on."""
        self._until[queue] = time.monotonic() + SHUN_S

    def met(self, queue: str, error: DelayqError) -> None:
        """It gave this trouble. When all of the backend is away no queue is to blame."""
        if isinstance(error, AWAY) and error.apart:
            self._away[queue] = error
            self._until[queue] = time.monotonic() + APART_S
        elif not isinstance(error, AWAY):
            self.add(queue)

    @property
    def any_away(self) -> bool:
        """Whether the node of any of them was away when it was last asked."""
        return bool(self._away)

    def away(self, queue: str) -> DelayqError | None:
        """Why it cannot be asked just now, when its node is away."""
        return self._away.get(queue) if queue in self else None

    def answered(self, queue: str) -> None:
        """Its node is there."""
        self._away.pop(queue, None)
