"""The seams of a child: the executor that its loop uses, and the runners that the executor uses."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from delayq.core.signals import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import HeldJob

Begin = Callable[[HeldJob, Attempt], None]
"""Takes the beginning of a handler that had to wait for its thread, or for the event loop."""

End = Callable[[HeldJob, Attempt, Any, BaseException | None], None]
"""Takes the end of an attempt: its result, or the error that it raised."""

AsyncEnd = Callable[[HeldJob, Attempt, Any, BaseException | None], Awaitable[None]]
"""The same in an event loop."""


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


class Executor(Protocol):
    """Runs jobs that have been started."""

    def execute(self, job: HeldJob) -> None:
        """Run a job, now or soon, and hand its settlement to InFlight."""
        ...

    def interrupt(self, job: HeldJob, error: JobInterrupted) -> None:
        """Raise an error in the handler of a job, as far as that is possible."""
        ...

    def wait(self, timeout: float) -> None:
        """Wait until a job has ended, or for `timeout` seconds."""
        ...

    def close(self) -> None:
        """Stop, when no job runs any more."""
        ...
