"""`@job`: a plain function becomes the handler of a job name.

The members of the payload arrive as keyword arguments, checked against the annotations. A
parameter annotated `JobContext` gets the context instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from delayq.core.names import check_job_name
from delayq.jobs.binding import bind
from delayq.jobs.by_id import Place
from delayq.jobs.by_id import place_of as place_of_jobs
from delayq.jobs.codecs import Codecs
from delayq.jobs.context import JobContext
from delayq.jobs.dispatch import Dispatch
from delayq.jobs.message import Message
from delayq.jobs.opened import Opened
from delayq.jobs.options import Declared, HandlerOptions, declare
from delayq.jobs.registry import current
from delayq.jobs.unsent import Unsent

if TYPE_CHECKING:
    from delayq.core.states import Answer
    from delayq.core.views import JobInfo

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_ELSEWHERE: Final = frozenset(
    (
        "dispatch",
        "adispatch",
        "dispatch_sync",
        "adispatch_sync",
        "dispatch_after_response",
        "delay",
        "without_delay",
        "on_queue",
        "on_connection",
        "after_commit",
        "within",
        "with_headers",
        "tags",
        "apply_async",
        "signature",
        "s",
        "send",
        "send_with_options",
        "enqueue",
        "defer",
    )
)
"""What a `Dispatch` has and a function has not; then how Celery, Dramatiq, RQ and Procrastinate call it."""


class JobFunction(Generic[P, R]):
    """A function that handles jobs of one name; still callable as the function it wraps."""

    hears_failures = False
    brings_middleware = False

    def __init__(
        self, name: str, function: Callable[P, R], options: HandlerOptions, codecs: Codecs | None = None
    ) -> None:
        self.name = check_job_name(name)
        self.function = function
        self.options = options
        self.is_async = _is_async(function)
        self.place = place_of(function)
        self._context, self.payload = bind(name, function, codecs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {place_of(self.function)}>"

    if not TYPE_CHECKING:  # type checkers would take it for "has every attribute"

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _ELSEWHERE:
                function = getattr(self.function, "__name__", "function")
                text += f". Make a job first, with the arguments, and send that: {function}.job(…).dispatch()"
            raise AttributeError(text, name=name, obj=self)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:
        """A job with these arguments, to be dispatched: `close_order.job(order_id=42).delay("15m").dispatch()`."""
        return self._job(*args, **kwargs)

    def _job(self, *args: Any, **kwargs: Any) -> Dispatch:
        signature = inspect.signature(self.function)
        if self._context:
            rest = [one for one in signature.parameters.values() if one.name != self._context]
            signature = signature.replace(parameters=rest)
        bound = signature.bind(*args, **kwargs)
        extra = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")
        values = {**bound.arguments, **bound.arguments.get(extra, {})}
        values.pop(extra, None)
        message = Message(self.name, partial(self.payload.write, values), self.options)
        return Dispatch(message, unsent=Unsent(f"A dispatch of the job {self.name!r}"))

    def cancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Make sure a job of this function does not run; asked in the queue that its declaration, or a route, names.

        Returns `cancelled`, or why not: `running`, `finished`, `failed`, `unknown`. With `running=True` a job that runs
        is asked to stop. Raises `FoundElsewhere` when another queue has a job with this id, for example one that was
        sent with `on_queue`; nothing is done to that. Raises `BackendError`; `ConfigError` without a Redis.
        """
        return _place(self).cancel(job_id, running)

    async def acancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Make sure a job of this function does not run, awaited. Takes, returns and raises what `cancel` does."""
        return await _place(self).acancel(job_id, running)

    def find(self, job_id: str) -> JobInfo | None:
        """Everything known about a job of this function; None when no queue has it. Raises as `cancel`."""
        return _place(self).find(job_id)

    async def afind(self, job_id: str) -> JobInfo | None:
        """Everything known about a job of this function, awaited. Returns and raises what `find` does."""
        return await _place(self).afind(job_id)

    def failed(self, data: msgspec.Raw, error: BaseException) -> None:
        """A function has no hook for failures."""

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Read the payload. Raises `InvalidPayload`."""
        fields = self.payload.read(data)
        arguments = {**fields, self._context: context()} if self._context else fields
        return Opened(fields, partial(self.function, **arguments))

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Call the function on a payload; for an async function, the answer is a coroutine to await.

        Raises `InvalidPayload` when the payload does not fit the parameters. `context` is only asked when wanted.
        """
        arguments = self.payload.read(data)
        if self._context:
            arguments[self._context] = context()
        return self.function(**arguments)  # type: ignore[call-arg]  # checked against the signature by the payload


class ContextFunction(JobFunction[Concatenate[JobContext, P], R], Generic[P, R]):
    """What type checkers see of a function whose first parameter is the context: jobs are made without it."""

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:  # type: ignore[override]  # the context is not the caller's
        """As `JobFunction.job`."""
        return self._job(*args, **kwargs)


def _place(function: JobFunction[..., Any]) -> Place:
    return place_of_jobs(function.name, function.options)


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; known before the call, so that a worker can choose where to run it."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def place_of(function: Callable[..., Any]) -> str:
    """Where a function was written: module, name and line. A partial, or an object that can be called, shows itself."""
    name, code = getattr(function, "__qualname__", None), getattr(function, "__code__", None)
    return f"{function.__module__}.{name}:{code.co_firstlineno}" if name and code else repr(function)


class _Registers(Protocol):
    """What `job(...)` gives: with the context as first parameter, `.job` does not ask for it."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...


def _needs_a_name(function: F) -> F:
    @wraps(function)
    def checked(*name: Any, **declared: Any) -> Any:
        if not name and "name" not in declared:
            raise TypeError('@job() needs the name of the job, as in @job("order.close").')
        return function(*name, **declared)

    return cast(F, checked)


@_needs_a_name
def job(name: str, **declared: Unpack[Declared]) -> _Registers:
    """Make a function the handler of the jobs called `name`, and register it.

    `queue` is served by `delayq work` without `--queue`. Other options (see `HandlerOptions`) hold for jobs that bring
    none of their own; None leaves one to the worker. Raises `ConfigError` for a function whose parameters cannot be
    filled by name, `InvalidInput` for an option that cannot be used, `TypeError` for `@job` without a name.
    """
    given: object = name
    if not isinstance(given, str):
        shown = getattr(given, "__name__", repr(given))
        raise TypeError(f'@job needs the name of the job: @job("…"). It was given {shown} instead.')
    options = declare(name, HandlerOptions(), declared)

    def register(function: Callable[..., Any]) -> JobFunction[..., Any]:
        handler = JobFunction(name, function, options, current().codecs)
        current().add(handler)
        return handler

    return cast(_Registers, register)
