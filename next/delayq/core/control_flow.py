"""Exceptions that handlers raise to choose the outcome of a job, and exceptions that interrupt a running handler."""

from collections.abc import Iterator

from delayq.core.times import Duration, duration_ms


class JobSignal(Exception):
    """The base class of `Retry`, `Snooze`, `Fail` and `Discard`, which a handler raises to choose its outcome.

    Do not catch these exceptions in the handler. `except Exception` catches these exceptions too, and delayq then never
    sees them.
    """


class Retry(JobSignal):
    """Raise this in a handler to end the attempt and retry the job. A `Retry` costs an attempt.

    `delay` is the wait before the next attempt, such as "5m"; without it, the backoff of the job applies. `reason` is
    the message of the recorded failure. If no attempts are left, the job fails. A `Retry` does not count towards
    `max_exceptions`. `Retry("soon")` raises InvalidInput, because the delay is not a duration.

        raise Retry("5m", reason="the warehouse is busy")
    """

    def __init__(self, delay: Duration | None = None, *, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay_ms = None if delay is None else duration_ms(delay)


class Snooze(JobSignal):
    """Raise this in a handler to run the job again after `delay`. A `Snooze` costs no attempt.

    Use `Snooze` when the job cannot do its work yet, for example `raise Snooze("1h")`. A `delay` that is not a duration
    raises InvalidInput. `reason` is not stored; `delayq work --log-jobs` logs it.
    """

    def __init__(self, delay: Duration, *, reason: str = "") -> None:
        super().__init__(reason or "the handler snoozed the job")
        self.reason = reason
        self.delay_ms = duration_ms(delay)


class LimitReached(Snooze):
    """Raised instead of a call of the handler, when a limit lets no further job run.

    The job runs again later, at no cost.

    `limit` is the name of the limit. The first wait is 1 to 3 s, at random. Each further refusal in a row makes the
    wait 1.5 times as long, up to 15 s.
    """

    def __init__(self, limit: str) -> None:
        super().__init__("1s", reason=f"the limit {limit} is reached")
        self.limit = limit


class Fail(JobSignal):
    """Raise this in a handler to fail the job at once, even if attempts are left.

    `reason` is a text, or an exception that is then recorded as the failure: `raise Fail("sold out")`.
    """

    def __init__(self, reason: str | BaseException = "the handler failed the job") -> None:
        super().__init__(str(reason))
        self.cause: BaseException = reason if isinstance(reason, BaseException) else self


class Discard(JobSignal):
    """Raise this in a handler to end the job and delete it. The job becomes neither completed nor failed."""

    def __init__(self, reason: str = "the handler discarded the job") -> None:
        super().__init__(reason)


class JobInterrupted(BaseException):
    """The base class of the exceptions that delayq raises in a running handler to interrupt it.

    It derives from BaseException, so that `except Exception` in a handler does not catch it.
    """


class JobTimedOut(JobInterrupted):
    """Raised in a handler that runs longer than the timeout of its job, or that still runs at the deadline of its job.

    A timeout costs an attempt. With `on_timeout="fail"`, and at the deadline, the job fails at once.
    """


class JobCancelled(JobInterrupted):
    """Raised in a running handler when its job is cancelled. The job does not fail and is not retried."""


class WorkerShutdown(JobInterrupted):
    """Raised in a running handler when the worker is shutting down and its grace period is about to end.

    The job runs again later, on this or another worker. The interruption costs no attempt.
    """


def leading_error(error: BaseException) -> BaseException:
    """Return the error that decides the outcome of an attempt.

    If `error` is not an exception group (which an asyncio.TaskGroup raises), return `error` itself. In a group, also in
    nested groups, the first of these errors decides: an interruption of the job, Fail, any other error, Discard, the
    Retry with the longest delay, the Snooze with the longest delay. For any other error, the whole group is returned.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    errors = list(_errors_in(error))
    for kind in (JobInterrupted, Fail):
        if found := [one for one in errors if isinstance(one, kind)]:
            return found[0]
    if not all(isinstance(one, JobSignal) for one in errors):
        return error
    if discards := [one for one in errors if isinstance(one, Discard)]:
        return discards[0]
    retries = [one for one in errors if isinstance(one, Retry)]
    snoozes = [one for one in errors if isinstance(one, Snooze)]
    return max(retries or snoozes, key=lambda one: one.delay_ms or 0, default=error)


def failure_of(error: BaseException | None) -> BaseException | None:
    """Return the exception that a `Fail` carries. Return any other error, and a `Fail` with a text, as it is."""
    leading = None if error is None else leading_error(error)
    return leading.cause if isinstance(leading, Fail) else error


def _errors_in(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _errors_in(error)
        else:
            yield error
