"""The seams of a child: the executor that its loop uses, and the runners that the executor uses."""

from collections.abc import Callable
from typing import Any, Protocol

from delayq.core.signals import JobInterrupted
from delayq.worker.attempt import Attempt
from delayq.worker.in_flight import HeldJob

End = Callable[[HeldJob, Attempt, Any, BaseException | None], None]
"""Is told how an attempt ended: its result, or the error that it raised."""


class Runner(Protocol):
    """Runs attempts in one way."""

    def run(self, job: HeldJob, attempt: Attempt) -> None:
        """Run an attempt, now or soon, and tell how it ended."""
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
