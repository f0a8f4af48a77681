"""The seam between the executor of a child and the ways in which a handler can run."""

from collections.abc import Callable
from typing import Any, Protocol

from delayq.core.signals import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import HeldJob

Begin = Callable[[HeldJob, Attempt], None]
"""Takes the beginning of a handler that had to wait for its thread, or for the event loop."""

End = Callable[[HeldJob, Attempt, Any, BaseException | None], None]
"""Takes the end of an attempt: its result, or the error that it raised."""


class Runner(Protocol):
    """Runs attempts in one way."""

    def run(self, job: HeldJob, attempt: Attempt) -> None:
        """Run an attempt, now or soon, and pass its end on."""
        ...

    def interrupt(self, job: HeldJob, error: JobInterrupted) -> None:
        """Raise an error in the handler of a job, as far as this way of running can."""
        ...

    def close(self) -> None:
        """Stop, when no job runs any more."""
        ...
