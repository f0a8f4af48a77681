"""The three kinds of handlers, behind one protocol: a function, a class of jobs, a method of a class.

A worker reads a payload with `read` and gives what comes out to `call`, or, when the job has failed for good, to
`failed`.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from delayq.core.errors import InvalidInput
from delayq.core.outcome import Policy
from delayq.jobs.context import JobContext
from delayq.jobs.options import JobOptions
from delayq.jobs.payload import Field, Payload

logger: Final = logging.getLogger("delayq.jobs")

_UNFILLABLE: Final = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


class Handler(Protocol):
    """The code that runs the jobs of one name.

    `is_async`: `call` returns a coroutine. `wants_context`: `call` needs the context. `has_failed_hook`: `failed` does
    something. `origin`: the module and the qualified name of what was declared.
    """

    name: str
    options: JobOptions
    is_async: bool
    wants_context: bool
    has_failed_hook: bool
    origin: str

    def policy(self, standard: Policy) -> Policy:
        """Return how the job is tried."""
        ...

    def read(self, data: bytes | msgspec.Raw) -> Any:
        """Return what `call` and `failed` take; raises UnknownJob, msgspec.ValidationError."""
        ...

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Run the job."""
        ...

    def failed(self, job: Any, error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Tell the job that it has failed for good, with the context of its last attempt."""
        ...


class FunctionHandler:
    """A function; the members of the payload are its keyword arguments."""

    has_failed_hook = False

    def __init__(self, function: Callable[..., Any], *, name: str, options: JobOptions) -> None:
        self.name = name
        self.options = options
        self.origin = origin_of(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.context_name, fields = _parameters(function)
        self.wants_context = self.context_name != ""
        self.payload = Payload(name, fields)
        self.policy = options.policy
        self.read = self.payload.read
        self._function = function

    def call(self, job: dict[str, Any], context: JobContext | None) -> Any:
        """Call the function; of a coroutine function the answer is the coroutine."""
        if self.wants_context:
            return self._function(**job, **{self.context_name: context})
        return self._function(**job)

    def failed(self, job: dict[str, Any], error: BaseException, context: JobContext | None) -> None:
        """Do nothing: a function has no hook."""


class MethodHandler:
    """A method of a class, for string jobs such as `Mailer@send`: called with the context and the payload."""

    wants_context = True

    def __init__(self, kind: type, method: str, *, name: str, options: JobOptions) -> None:
        self.name = name
        self.options = options
        self.origin = f"{origin_of(kind)}.{method}"
        self.is_async = inspect.iscoroutinefunction(getattr(kind, method))
        self.has_failed_hook = callable(getattr(kind, "failed", None))
        self.policy = options.policy
        self._kind = kind
        self._method = method

    def read(self, data: bytes | msgspec.Raw) -> Any:
        """Return the payload as plain JSON values."""
        return msgspec.json.decode(data)

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Call the method on a new object of the class."""
        return getattr(self._kind(), self._method)(context, job)

    def failed(self, job: Any, error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Call `failed(data, error)` on a new object of the class."""
        answer: Awaitable[None] | None = getattr(self._kind(), "failed")(job, error)  # noqa: B009
        return answer


def origin_of(declared: Callable[..., Any]) -> str:
    """Return the module and the qualified name of a function or class."""
    name = getattr(declared, "__qualname__", None) or type(declared).__qualname__
    return f"{getattr(declared, '__module__', '')}.{name}"


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    """Await something that `asyncio.run` does not take, because it need not be a coroutine."""
    return await awaitable


def tell_failed(
    handler: Handler, job: Any, error: BaseException, context: JobContext | None, *, job_id: str
) -> Awaitable[None] | None:
    """Call the hook of a job that has failed for good. Returns what is to be awaited, if the hook is async.

    What the hook raises is logged: the job has failed either way.
    """
    try:
        answer = handler.failed(job, error, context)
    except KeyboardInterrupt:
        raise
    except BaseException:
        _log_broken_hook(handler, job_id)
        return None
    return _guarded(answer, handler, job_id) if inspect.isawaitable(answer) else None


async def _guarded(answer: Awaitable[None], handler: Handler, job_id: str) -> None:
    try:
        await answer
    except KeyboardInterrupt:
        raise
    except BaseException:
        _log_broken_hook(handler, job_id)


def _log_broken_hook(handler: Handler, job_id: str) -> None:
    logger.exception("job %s (%s): its failed hook raised", job_id, handler.name)


def _parameters(function: Callable[..., Any]) -> tuple[str, list[Field]]:
    """Return the name of the parameter that takes the JobContext ('' = none), and all others as fields."""
    plain = inspect.unwrap(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidInput(f"{origin_of(function)} is a generator, so a call would run nothing.", hint="Use no yield.")
    context_name = ""
    fields: list[Field] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind in _UNFILLABLE:
            raise InvalidInput(
                f"The parameter {parameter} of {origin_of(function)} cannot take a member of the payload.",
                hint="Give each member a parameter with its name.",
            )
        if parameter.annotation is JobContext:
            context_name = parameter.name
        else:
            kind = Any if parameter.annotation is parameter.empty else parameter.annotation
            fields.append(Field(parameter.name, kind, default_of(parameter.default)))
    return context_name, fields


def default_of(value: Any) -> Callable[[], Any] | None:
    """Return what makes a default; None for a parameter or field without one. Python shares defaults, and so do we."""
    return None if value is inspect.Parameter.empty else lambda: value
