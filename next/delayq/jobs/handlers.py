"""Handlers: the code that runs jobs. A function, a method of a class, and a job class share one protocol.

A worker decodes a payload with `read`, and passes the decoded payload to `call`. If the job fails for good, the
worker passes the decoded payload to `failed` too. The handler of job classes is in job.py.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Protocol, Union, get_args, get_origin

import msgspec

from delayq.core.errors import InvalidInput
from delayq.core.outcome import Policy
from delayq.jobs.context import JobContext
from delayq.jobs.models import ModelField
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

    * `is_async`: `call` returns a coroutine.
    * `wants_context`: `call` needs the context.
    * `has_failed_hook`: the application has a `failed` hook for these jobs.
    * `has_middleware`: the job class has a method `middleware`.
    * `model_fields`: the fields whose values are models, by name.
    * `origin`: the module and qualified name of the declared function, class or method.
    """

    name: str
    options: JobOptions
    is_async: bool
    wants_context: bool
    has_failed_hook: bool
    has_middleware: bool
    model_fields: Mapping[str, ModelField]
    origin: str

    @property
    def payload_members(self) -> Collection[str] | None:
        """The names of the members of the payload; None = the handler accepts any payload."""
        ...

    def policy(self, standard: Policy) -> Policy:
        """Return `standard`, overridden by the declared values of the job."""
        ...

    def read(self, data: bytes | msgspec.Raw) -> Any:
        """Decode a payload for `call` and `failed`; raises UnknownJob, msgspec.ValidationError."""
        ...

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Run the job."""
        ...

    def instance(self, job: Any, context: JobContext) -> Any:
        """Return the object of a job class; None for a function or method."""
        ...

    def call_on(self, instance: Any, job: Any, context: JobContext) -> Any:
        """Run the job with the object that `instance` returned."""
        ...

    def failed(self, job: Any, error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Call the `failed` hook of a job that has failed for good, with the context of its last attempt."""
        ...


class FunctionHandler:
    """A function as a handler. The payload is passed as keyword arguments."""

    has_failed_hook = False
    has_middleware = False

    def __init__(self, function: Callable[..., Any], *, name: str, options: JobOptions) -> None:
        self.name = name
        self.options = options
        self.origin = origin_of(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.context_name, fields = _parameters(function)
        self.wants_context = self.context_name != ""
        self.payload = Payload(name, fields)
        self.model_fields = self.payload.model_fields
        self.payload_members = self.payload.kinds
        self.policy = options.policy
        self.read = self.payload.read
        self._function = function

    def call(self, job: dict[str, Any], context: JobContext | None) -> Any:
        """Call the function. A coroutine function returns its coroutine."""
        if self.wants_context:
            return self._function(**job, **{self.context_name: context})
        return self._function(**job)

    def instance(self, job: dict[str, Any], context: JobContext) -> None:
        """Return None, because a function has no object."""

    def call_on(self, instance: None, job: dict[str, Any], context: JobContext) -> Any:
        """Call the function."""
        return self.call(job, context)

    def failed(self, job: dict[str, Any], error: BaseException, context: JobContext | None) -> None:
        """Do nothing, because a function has no `failed` hook."""


class MethodHandler:
    """A method as a handler of jobs with names like `Mailer@send`. The method gets the context and the payload."""

    wants_context = True
    has_middleware = False
    payload_members = None

    def __init__(self, kind: type, method: str, *, name: str, options: JobOptions) -> None:
        self.name = name
        self.options = options
        self.origin = f"{origin_of(kind)}.{method}"
        self.is_async = inspect.iscoroutinefunction(getattr(kind, method))
        self.has_failed_hook = callable(getattr(kind, "failed", None))
        self.model_fields: Mapping[str, ModelField] = {}
        self.policy = options.policy
        self._kind = kind
        self._method = method

    def read(self, data: bytes | msgspec.Raw) -> Any:
        """Return the payload as plain JSON values."""
        return msgspec.json.decode(data)

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Call the method on a new object of the class."""
        return getattr(self._kind(), self._method)(context, job)

    def instance(self, job: Any, context: JobContext) -> None:
        """Return None, because middleware of a method gets no object."""

    def call_on(self, instance: None, job: Any, context: JobContext) -> Any:
        """Call the method."""
        return self.call(job, context)

    def failed(self, job: Any, error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Call `failed(data, error)` on a new object of the class."""
        answer: Awaitable[None] | None = getattr(self._kind(), "failed")(job, error)  # noqa: B009
        return answer


def origin_of(declared: Callable[..., Any]) -> str:
    """Return the module and the qualified name of a function or class."""
    name = getattr(declared, "__qualname__", None) or type(declared).__qualname__
    return f"{getattr(declared, '__module__', '')}.{name}"


def call_failed_hook(
    handler: Handler, job: Any, error: BaseException, context: JobContext | None, *, job_id: str
) -> Awaitable[None] | None:
    """Call the `failed` hook of a job that has failed for good. If the hook is async, return an awaitable.

    Errors of the hook are logged and not raised, because the job has failed anyway.
    """
    try:
        answer = handler.failed(job, error, context)
        if answer is not None and not inspect.isawaitable(answer):
            checked_result(answer)
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
    logger.exception("job %s (%s): the `failed` hook of the job raised an exception", job_id, handler.name)


def _parameters(function: Callable[..., Any]) -> tuple[str, list[Field]]:
    """Return the name of the parameter for the JobContext ('' = none), and all other parameters as fields."""
    refuse_generator(function, unwraps=True)
    context_name = ""
    fields: list[Field] = []
    for parameter in _signature(function).parameters.values():
        if parameter.kind in _UNFILLABLE:
            raise InvalidInput(
                f"The parameter {parameter} of {origin_of(function)} cannot be passed by name.",
                hint="Use one plain parameter for each member of the payload.",
            )
        if _is_context(parameter.annotation, parameter, function):
            context_name = parameter.name
        else:
            kind = Any if parameter.annotation is parameter.empty else parameter.annotation
            fields.append(Field(parameter.name, kind, default_of(parameter.default)))
    return context_name, fields


def refuse_generator(
    function: Callable[..., Any], *, hint: str = "Remove `yield` from it.", unwraps: bool = False
) -> None:
    """Raise InvalidInput for a generator function.

    `unwraps`: True = also refuse a generator function behind a decorator that uses `functools.wraps`, as for handlers.
    False = accept it, as for hooks, because a decorator may iterate over the generator.
    """
    plain = inspect.unwrap(function) if unwraps else function
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidInput(
            f"{origin_of(function)} is a generator function, so calling it would not run its code.", hint=hint
        )


def refuse_async(function: Callable[..., Any], *, hint: str = "Remove `async` from it.") -> None:
    """Raise InvalidInput for an async function or a generator function.

    Use this for functions that delayq calls without `await`. Such a call would not run the code of an async function or
    generator function.
    """
    refuse_generator(function)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise InvalidInput(f"{origin_of(function)} is async, but delayq calls it without `await`.", hint=hint)


def checked_result(result: Any) -> Any:
    """Return the result of a handler. Raises TypeError for a generator or coroutine, whose code has not run.

    The declaration cannot detect a generator function behind a decorator without `functools.wraps`. A middleware or
    handler that forgets `await` returns a coroutine.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            f"The handler or its middleware returned a coroutine ({result.__qualname__}), and the code of this "
            "coroutine did not run. In an async function, write `return await …`."
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            f"The handler returned a generator ({result.__qualname__}), and the code of this generator did not run. "
            "Remove `yield` from the handler, or from the function that its decorator wraps."
        )
    return result


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with resolved annotations. JobContext need not be imported at run time."""
    try:
        try:
            return inspect.signature(function, eval_str=True)
        except NameError:
            return inspect.signature(function, eval_str=True, locals={"JobContext": JobContext})
    except NameError as error:
        raise InvalidInput(
            f"An annotation of {origin_of(function)} cannot be read: {error}.",
            hint="Import the type at run time, outside of `if TYPE_CHECKING`, because delayq needs the type to read "
            "the payload.",
            field="data",
        ) from None


def _is_context(annotation: Any, parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    """Return True for JobContext, also inside Annotated or in a union with None.

    Raises InvalidInput for a union of JobContext with another type.
    """
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation is JobContext
    parts = [part for part in get_args(annotation) if part is not type(None)]
    are_contexts = [_is_context(part, parameter, function) for part in parts]
    if any(are_contexts) and len(parts) > 1:
        raise InvalidInput(
            f"The parameter {parameter} of {origin_of(function)} is annotated with a union of JobContext and another "
            "type.",
            hint="Annotate the context as JobContext alone.",
            field="data",
        )
    return any(are_contexts)


def default_of(value: Any) -> Callable[[], Any] | None:
    """Return a function that returns the default of a parameter or field.

    If there is no default, return None instead of a function.

    All calls return the same object, as defaults in Python do.
    """
    return None if value is inspect.Parameter.empty else lambda: value
