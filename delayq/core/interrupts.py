"""What is raised into a handler that has to stop. From outside, so not errors of the handler's own.

They derive from `BaseException`, so that a handler's `except Exception: try again` does not swallow
them. A handler may catch one to clean up, and should raise it again.
"""

from __future__ import annotations


class JobInterrupted(BaseException):
    """Base of all interruptions."""


class JobTimedOut(JobInterrupted):
    """The job ran longer than its timeout, or past its deadline; it costs an attempt and is tried again."""


class JobCancelled(JobInterrupted):
    """Somebody asked for the running job to be cancelled; it is neither failed nor tried again."""

    def __init__(self, message: str = "The job was asked to stop.") -> None:
        super().__init__(message)


class WorkerShutdown(JobInterrupted):
    """The worker stops, and its grace is nearly over. The job is handed back; no attempt is counted."""

    def __init__(self, message: str = "The worker stops, and its grace is nearly over.") -> None:
        super().__init__(message)
