"""`FailOnException`: middleware that knows which errors will not go away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from delayq.core.errors import ConfigError
from delayq.core.signals import Fail, JobSignal
from delayq.jobs.middleware.conditions import at_once, refuse_async
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAITS = "A function of FailOnException answered with something to await."


class FailOnException:
    """Fails the job for good, whatever tries are left, when the handler raises one of these.

        middleware=[FailOnException(PermissionError, KeyError)]
        middleware=[FailOnException(lambda error: "no such order" in str(error))]

    The failure is that error. Signals and interruptions pass. Raises `ConfigError` for what is neither a class of
    exceptions nor a function of an error.
    """

    def __init__(self, *which: type[Exception] | Callable[[Exception], bool]) -> None:
        self._kinds = tuple(one for one in which if isinstance(one, type) and issubclass(one, Exception))
        self._tests = tuple(one for one in which if not isinstance(one, type) and callable(one))
        if not which or len(self._kinds) + len(self._tests) != len(which):
            raise ConfigError(
                f"FailOnException was given {which!r}.",
                hint="Give classes of exceptions, or functions that are given the error.",
            )
        refuse_async("FailOnException", *self._tests)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        with self._failing():
            return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        with self._failing():
            return await next(job)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except JobSignal:
            raise
        except Exception as error:
            if isinstance(error, self._kinds) or any(at_once(test(error), _WAITS) for test in self._tests):
                raise Fail(error) from error
            raise
