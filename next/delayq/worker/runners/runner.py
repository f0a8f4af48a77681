"""The protocol of the three ways in which a child runs handlers."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import JobInFlight

Begin = Callable[[JobInFlight, Attempt], None]
"""Takes the beginning of a handler that had to wait for its thread, or for the event loop."""

End = Callable[[JobInFlight, Attempt, Any, BaseException | None], None]
"""Takes the end of an attempt: its result, or the error that it raised."""

AsyncEnd = Callable[[JobInFlight, Attempt, Any, BaseException | None], Awaitable[None]]
"""The same in an event loop."""


class Runner(Protocol):
    """Runs attempts in one way."""

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Run an attempt, now or soon, and pass its end on."""
        ...

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Raise an error in the handler of a job, as far as this way of running can."""
        ...

    def close(self) -> None:
        """Stop, when no job runs any more."""
        ...
