"""Middleware: code that runs around the handlers of jobs.

    class Timed:
        def handle(self, job: RunningJob, next: Next) -> Any:
            started = time.monotonic()
            try:
                return next(job)
            finally:
                print(job.context.name, time.monotonic() - started)

    @job("order.close", middleware=[Timed()])              for the jobs of one name
    use_middleware(Timed())                                for all jobs of this program

A middleware calls `next(job)` to go on. If the middleware returns without this call, the handler does not run, and the
job is completed. The middleware of `use_middleware` is outermost. The declared middleware follows, and then the
middleware that the method `middleware` of a job class returns.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.jobs.context import JobContext

Next = Callable[["RunningJob"], Any]
"""Runs the next middleware or the handler, and returns its result. In `ahandle`, await the result."""

HINT: Final = "Use an object with a method `handle(job, next)`, `async def ahandle(job, next)`, or both."


class RunningJob(msgspec.Struct, frozen=True):
    """The running job, as middleware sees it.

    * `context`: the context of the attempt, with id, name, queue, headers and so on.
    * `data`: the decoded payload. For functions and job classes, a dict of converted values by field name.
    * `instance`: the object of a job class; None for a function or method.
    """

    context: JobContext
    data: Any
    instance: Any = None


class Middleware(Protocol):
    """Code around a handler that is a plain function or method."""

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Run code around `next(job)`, and return its result."""
        ...


class AsyncMiddleware(Protocol):
    """Code around a handler that is a coroutine function."""

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Run code around `await next(job)`, and return its result."""
        ...


AnyMiddleware = Middleware | AsyncMiddleware


class CheckedMiddleware:
    """The base class of middleware that can be used only for some jobs."""

    def check_job(self, job_name: str, timeout_ms: int | None, members: Collection[str] | None) -> None:
        """Raise InvalidInput if the middleware cannot be used for a job.

        `timeout_ms`: None = not declared. `members`: the names of the members of the payload; None = not known.
        """

    def check_start(self, job_name: str) -> None:
        """Raise InvalidInput if the worker cannot run the job. The worker calls this at its start.

        Use it for checks that need the whole application, because `use_limit`, for example, may come after the
        declaration.
        """


def check_middleware(middleware: object) -> tuple[AnyMiddleware, ...]:
    """Return middleware as a tuple.

    Raises InvalidInput if `middleware` is not a list, and for objects without a usable method `handle` or `ahandle`.
    """
    if not isinstance(middleware, Sequence) or isinstance(middleware, str | bytes):
        raise InvalidInput(
            f"middleware is {shown(middleware)}, not a list.",
            hint="An example: middleware=[Timed()].",
            field="middleware",
        )
    for one in middleware:
        if isinstance(one, type) or not (
            callable(getattr(one, "handle", None)) or callable(getattr(one, "ahandle", None))
        ):
            raise InvalidInput(f"The middleware {shown(one)} cannot run.", hint=HINT, field="middleware")
        for name in ("handle", "ahandle"):
            if callable(method := getattr(one, name, None)) and not takes(method, 2):
                raise InvalidInput(
                    f"The method `{name}` of the middleware {type(one).__name__} does not take a job and `next`.",
                    hint=HINT,
                    field="middleware",
                )
    return tuple(middleware)


def takes(function: Callable[..., object], count: int) -> bool:
    """Return False if a function cannot be called with `count` values by position."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a function in C without a signature
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def check_fits(
    middleware: Sequence[AnyMiddleware],
    job_name: str,
    *,
    is_async: bool,
    timeout_ms: int | None = None,
    members: Collection[str] | None = None,
) -> None:
    """Raise InvalidInput if a middleware lacks the method for the handler of a job, or cannot be used for the job.

    `timeout_ms`: the declared timeout of the job; None = the job declares none. `members`: the names of the members of
    its payload; None = not known.
    """
    method, kind = ("ahandle", "async") if is_async else ("handle", "not async")
    for one in middleware:
        if not callable(getattr(one, method, None)):
            raise InvalidInput(
                f"The handler of the job {job_name!r} is {kind}, but the middleware {type(one).__name__} has no method "
                f"`{method}`.",
                hint=f"Add the method `{method}` to the middleware.",
                field="middleware",
            )
        if not is_async and inspect.iscoroutinefunction(getattr(one, "handle")):  # noqa: B009
            raise InvalidInput(
                f"The middleware {type(one).__name__} of the job {job_name!r} has an async method `handle`.",
                hint="Write `def handle`, or rename the method to `ahandle` for async handlers.",
                field="middleware",
            )
        if isinstance(one, CheckedMiddleware):
            one.check_job(job_name, timeout_ms, members)
