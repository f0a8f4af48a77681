"""Who runs handlers in a child. All kinds of crew look alike to the one who hands out the work."""

from __future__ import annotations

from typing import Protocol

from delayq.worker.attempt import Attempt
from delayq.worker.held import Held


class Crew(Protocol):
    """Runs attempts and finishes what it was given to hold."""

    def room(self) -> int:
        """How many attempts may be started now."""

    def start(self, held: Held, attempt: Attempt) -> None:
        """Run an attempt, or see to it that it is run; there was room."""

    def flush(self) -> None:
        """Nothing more comes for now: begin with what was started."""

    def interrupt(self, held: Held, error: BaseException) -> None:
        """Raise into the handler of a running attempt, as well as this crew can. Called by the watchdog's thread."""

    def close(self) -> None:
        """No more work. What still runs is left behind."""
