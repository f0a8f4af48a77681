"""Is the backend away, or a part of it? A loop that serves many queues notes which of them it could not reach."""

from __future__ import annotations

from collections.abc import Collection

from delayq.core.errors import BackendError


class Outage:
    """What a loop last met with each of its queues."""

    def __init__(self) -> None:
        self._met: dict[str, BackendError] = {}

    def served(self, queue: str) -> None:
        """It could be reached."""
        self._met.pop(queue, None)

    def met(self, queue: str, error: BackendError) -> None:
        """It could not. Raises `error` unless that is about a part only: then the others have their turn."""
        if not error.apart:
            raise error
        self._met[queue] = error

    def over(self, queues: Collection[str]) -> None:
        """The turn is over: raises what was met last if none of `queues` can be reached."""
        self._met = {queue: error for queue, error in self._met.items() if queue in queues}
        if queues and len(self._met) == len(queues):
            raise next(reversed(self._met.values()))
