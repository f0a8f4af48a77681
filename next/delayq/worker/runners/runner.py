"""The protocol of runners. A child has one for plain functions, and one for async handlers if any are declared."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from delayq.core.control_flow import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import JobInFlight

Begin = Callable[[JobInFlight, Attempt], None]
"""Called when a handler begins in another thread or in the event loop."""

End = Callable[[JobInFlight, Attempt, Any, BaseException | None], None]
"""Called when an attempt has ended, with its result, or with the error that it raised."""

AsyncEnd = Callable[[JobInFlight, Attempt, Any, BaseException | None], Awaitable[None]]
"""The same as `End`, for an attempt in the event loop."""


class Runner(Protocol):
    """Runs attempts in one way: in the main thread, in other threads, or in an event loop."""

    def run(self, job: JobInFlight, attempt: Attempt) -> None:
        """Run an attempt, now or soon. At its end, call `End` or `AsyncEnd`."""
        ...

    def interrupt(self, job: JobInFlight, error: JobInterrupted) -> None:
        """Raise an error in the handler of a job, if this runner can do that."""
        ...

    def close(self) -> None:
        """Stop the runner. This method is called only when no job is running."""
        ...
