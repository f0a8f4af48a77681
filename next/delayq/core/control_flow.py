"""Exceptions by which a handler chooses the outcome of its job, and those that are raised into one that has to stop."""

from delayq.core.times import Duration, duration_ms


class JobSignal(Exception):
    """The base of what a handler may raise. Let it through: `except Exception` in a handler swallows it."""


class Retry(JobSignal):
    """Try again after `delay` ('5m'), or after the backoff of the job. Costs an attempt.

    Raises InvalidInput when the delay is no duration.
    """

    def __init__(self, delay: Duration | None = None, *, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay_ms = None if delay is None else duration_ms(delay)


class Snooze(JobSignal):
    """Run again after `delay`. Costs no attempt. Raises InvalidInput when the delay is no duration."""

    def __init__(self, delay: Duration, *, reason: str = "") -> None:
        super().__init__(reason or "the handler snoozed the job")
        self.delay_ms = duration_ms(delay)


class Fail(JobSignal):
    """Fail now, whatever tries are left. An exception as the reason is kept as the failure."""

    def __init__(self, reason: str | BaseException = "the handler failed the job") -> None:
        super().__init__(str(reason))
        self.cause: BaseException = reason if isinstance(reason, BaseException) else self


class Discard(JobSignal):
    """Stop and forget the job: neither completed nor failed."""

    def __init__(self, reason: str = "the handler discarded the job") -> None:
        super().__init__(reason)


class JobInterrupted(BaseException):
    """The base of what is raised into a running handler. It is no Exception, so that a handler's own retries let it
    through.
    """


class JobTimedOut(JobInterrupted):
    """The job ran longer than its timeout. Costs an attempt."""


class JobCancelled(JobInterrupted):
    """A cancel asked the running job to stop. It is neither failed nor tried again."""


class WorkerShutdown(JobInterrupted):
    """The worker stops, and its grace is nearly over. The job is handed back; no attempt is counted."""
