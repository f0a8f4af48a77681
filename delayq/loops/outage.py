"""Is the backend away, or a part of it? A loop that serves many queues asks after each that could not be reached."""

from __future__ import annotations

from delayq.core.errors import BackendError

PATIENCE = 2
"""Queues of parts that are away, in one turn: each try takes seconds, and others wait."""


class Outage:
    """What one turn of a loop has met so far."""

    def __init__(self) -> None:
        self._served = False
        self._met: list[BackendError] = []

    def served(self) -> None:
        """A queue could be reached."""
        self._served = True

    def met(self, error: BackendError) -> None:
        """One could not. Raises `error` when that ends the turn: all is away, or enough was tried."""
        self._met.append(error)
        if not error.apart or len(self._met) >= PATIENCE:
            raise error

    def over(self) -> None:
        """The turn is over: raises what was met if no queue could be reached."""
        if self._met and not self._served:
            raise self._met[-1]
