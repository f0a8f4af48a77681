"""Middleware that decides whether a handler runs, and which errors fail its job."""

from collections.abc import Callable
from typing import Any

from delayq.core.control_flow import Fail, JobSignal
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.jobs.handlers import checked_result, refuse_async
from delayq.jobs.middleware import Next, RunningJob

Condition = bool | Callable[[RunningJob], object]
"""True or False, or a function that gets the running job and returns a true or false value."""


class Skip:
    """Skips jobs: the handler is not called, and the job is done. Make one with `Skip.when` or `Skip.unless`."""

    def __init__(self, condition: Condition, *, skips_if: bool) -> None:
        if not isinstance(condition, bool) and not callable(condition):
            raise InvalidInput(
                f"The condition is {shown(condition)}.",
                hint="Use True, False, or a function that gets the running job.",
                field="middleware",
            )
        if callable(condition):
            refuse_async(condition)
        self._condition = condition
        self._skips_if = skips_if

    @classmethod
    def when(cls, condition: Condition) -> "Skip":
        """Skip a job if the condition is true."""
        return cls(condition, skips_if=True)

    @classmethod
    def unless(cls, condition: Condition) -> "Skip":
        """Skip a job if the condition is false."""
        return cls(condition, skips_if=False)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Call the handler, or skip it."""
        return None if self._skips(job) else next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Call an async handler, or skip it."""
        return None if self._skips(job) else await next(job)

    def _skips(self, job: RunningJob) -> bool:
        condition = self._condition
        return bool(checked_result(condition(job)) if callable(condition) else condition) is self._skips_if


class SkipIfBatchCancelled:
    """Skips members and callbacks of a batch that was cancelled. Each job asks Redis before its handler is called."""

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Call the handler, unless the batch of the job was cancelled."""
        batch = job.context.batch
        return None if batch is not None and batch.cancelled() else next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Call an async handler, unless the batch of the job was cancelled."""
        batch = job.context.batch
        return None if batch is not None and await batch.acancelled() else await next(job)


class FailOnException:
    """Fails a job at once, without further attempts, if its handler raises one of these exceptions.

    FailOnException(InvalidCard)                               classes of exceptions
    FailOnException(lambda error: "sold out" in str(error))    a function that gets the exception
    """

    def __init__(self, *errors: type[Exception] | Callable[[Exception], object]) -> None:
        wrong = [one for one in errors if not _is_usable(one)]
        if not errors or wrong:
            raise InvalidInput(
                f"FailOnException was given {shown(wrong[0]) if wrong else 'nothing'}.",
                hint="Give classes that derive from Exception, or a function that gets the exception. For timeouts, "
                "declare on_timeout='fail'.",
                field="middleware",
            )
        for one in errors:
            if not isinstance(one, type):
                refuse_async(one)
        self._errors = errors

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Call the handler. Raises Fail after one of the exceptions."""
        try:
            return next(job)
        except Exception as error:
            if self._fails(error):
                raise Fail(error) from error
            raise

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Call an async handler. Raises Fail after one of the exceptions."""
        try:
            return await next(job)
        except Exception as error:
            if self._fails(error):
                raise Fail(error) from error
            raise

    def _fails(self, error: Exception) -> bool:
        return not isinstance(error, JobSignal) and any(_matches(one, error) for one in self._errors)


def _is_usable(wanted: object) -> bool:
    """Return True for a function, and for a class of exceptions that `handle` catches. JobTimedOut is not caught."""
    return issubclass(wanted, Exception) if isinstance(wanted, type) else callable(wanted)


def _matches(wanted: type[Exception] | Callable[[Exception], object], error: Exception) -> bool:
    if isinstance(wanted, type):
        return isinstance(error, wanted)
    return bool(checked_result(wanted(error)))
