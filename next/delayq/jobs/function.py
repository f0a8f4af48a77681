"""Jobs as plain functions: `@job("order.close")`. The members of `data` arrive as keyword arguments."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from delayq.core.backoff import BackoffSpec, parse_backoff
from delayq.core.errors import InvalidInput, UnknownJob
from delayq.core.job_spec import MAX_TRIES, check_whole_number
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import OnTimeout, Policy
from delayq.core.times import Duration, duration_ms
from delayq.jobs.context import JobContext

F = TypeVar("F", bound=Callable[..., Any])


class Handler:
    """A registered function, with what its declaration says about retries.

    `is_async`: the function is a coroutine function. `wants_context`: a parameter of it is a JobContext.
    """

    def __init__(self, function: Callable[..., Any], *, name: str, queue: str, declared: dict[str, Any]) -> None:
        self.name = name
        self.queue = queue
        self._declared = declared
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        self._function = function
        self._context_name, arguments = _parameters(function)
        self._decoder = msgspec.json.Decoder(arguments)
        self.wants_context = self._context_name != ""

    def policy(self, standard: Policy) -> Policy:
        """Return how the job is tried: what it declares, over what holds for all jobs."""
        return replace(standard, **self._declared)

    def read(self, data: bytes) -> dict[str, Any]:
        """Return the arguments in `data`, JSON, checked against the annotations of the function.

        Raises UnknownJob for a member that the function does not have: a newer release may know it.
        """
        try:
            arguments = self._decoder.decode(b"{}" if bytes(data) == b"null" else data)
        except msgspec.ValidationError as error:
            if "unknown field" in str(error):
                raise UnknownJob(
                    f"The job {self.name!r} cannot be read here: {error}.",
                    hint="A worker with the release that sent it can read it.",
                ) from None
            raise
        return msgspec.structs.asdict(arguments)

    def call(self, arguments: dict[str, Any], context: JobContext | None) -> Any:
        """Call the function; of a coroutine function the answer is the coroutine."""
        if self._context_name:
            return self._function(**arguments, **{self._context_name: context})
        return self._function(**arguments)


class Registry:
    """The jobs that a program knows, by name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register a handler; raises InvalidInput when its name is taken."""
        if handler.name in self._handlers:
            raise InvalidInput(
                f"The job {handler.name!r} is declared twice.", hint="Give each job a name of its own.", field="name"
            )
        self._handlers[handler.name] = handler

    def get(self, name: str) -> Handler:
        """Return the handler of a name; raises UnknownJob."""
        try:
            return self._handlers[name]
        except KeyError:
            raise UnknownJob(
                f"No handler is declared for the job {name!r}.", hint="A worker with a newer release may have it."
            ) from None

    def names(self) -> list[str]:
        """List the names of all jobs, sorted."""
        return sorted(self._handlers)

    def queues(self) -> list[str]:
        """List the queues of all registered jobs, sorted."""
        return sorted({handler.queue for handler in self._handlers.values()})

    def has_async(self) -> bool:
        """Whether any handler is a coroutine function."""
        return any(handler.is_async for handler in self._handlers.values())


registry: Final = Registry()


_FIXED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def job(
    name: str,
    *,
    queue: str = "default",
    tries: int | None = None,
    backoff: BackoffSpec | None = None,
    timeout: Duration | None = None,
    on_timeout: OnTimeout = "retry",
    retention: Duration | None = None,
    max_exceptions: int | None = None,
    registry: Registry = registry,
) -> Callable[[F], F]:
    """Declare the decorated function, sync or async, as the job `name`. The function itself stays as it is.

    `tries` (5; 0 = no limit) and `backoff` (exponential from 5 s) say how a failed attempt is tried again, `timeout`
    ('60s'; '0s' = none) how long one attempt may run and `on_timeout` whether it is tried again then, `retention` how
    long the finished job is kept with its result, `max_exceptions` how many attempts may raise. Raises InvalidInput.
    """
    if tries is not None:
        check_whole_number("tries", tries, least=0, most=MAX_TRIES)
    if max_exceptions is not None:
        check_whole_number("max_exceptions", max_exceptions, least=1, most=MAX_TRIES)
    declared = {
        "tries": tries,
        "backoff": None if backoff is None else parse_backoff(backoff),
        "timeout_ms": None if timeout is None else duration_ms(timeout, field="timeout"),
        "on_timeout": on_timeout,
        "retention_ms": None if retention is None else duration_ms(retention, field="retention"),
        "max_exceptions": max_exceptions,
    }
    said = {option: value for option, value in declared.items() if value is not None}

    def declare(function: F) -> F:
        registry.add(Handler(function, name=check_job_name(name), queue=check_queue(queue), declared=said))
        return function

    return declare


def _parameters(function: Callable[..., Any]) -> tuple[str, type[msgspec.Struct]]:
    """Return the name of the parameter that takes the JobContext ('' = none), and the type of all others."""
    plain = inspect.unwrap(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidInput(f"{_name_of(function)} is a generator, so a call would run nothing.", hint="Use no yield.")
    context_name = ""
    fields: list[Any] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind in _FIXED:
            raise InvalidInput(
                f"The parameter {parameter} of {_name_of(function)} cannot take a member of the payload.",
                hint="Give each member a parameter with its name.",
            )
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        if annotation is JobContext:
            context_name = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            fields.append((parameter.name, annotation, parameter.default))
    return context_name, msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
