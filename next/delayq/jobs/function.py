"""Jobs as plain functions: `@job("order.close")`. The members of `data` arrive as keyword arguments."""

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from delayq.core.backoff import Backoff, exponential
from delayq.core.errors import DelayqError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TRIES: Final = 5


class UnknownJob(DelayqError):
    """No function is registered under the name of a job."""


class Handler:
    """A registered function, with what its declaration says about retries."""

    def __init__(self, function: Callable[..., Any], *, name: str, queue: str, tries: int, backoff: Backoff) -> None:
        self.name = name
        self.queue = queue
        self.tries = tries
        self.backoff = backoff
        self._function = function
        self._arguments = _arguments_type(function)
        self._decoder = msgspec.json.Decoder(self._arguments)

    def call(self, data: bytes) -> Any:
        """Call the function with the members of `data`, JSON, checked against its annotations."""
        arguments = self._decoder.decode(data)
        return self._function(**{name: getattr(arguments, name) for name in self._arguments.__struct_fields__})


class Registry:
    """The jobs that a program knows, by name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register a handler, or raise ValueError when its name is taken."""
        if handler.name in self._handlers:
            raise ValueError(f"job {handler.name!r} is declared twice: give each job a name of its own")
        self._handlers[handler.name] = handler

    def get(self, name: str) -> Handler:
        """Return the handler of a name, or raise UnknownJob."""
        try:
            return self._handlers[name]
        except KeyError:
            raise UnknownJob(f"job {name!r} is not declared here: import the module that declares it") from None

    def queues(self) -> list[str]:
        """List the queues of all registered jobs, sorted."""
        return sorted({handler.queue for handler in self._handlers.values()})


registry: Final = Registry()


def job(
    name: str,
    *,
    queue: str = "default",
    tries: int = DEFAULT_TRIES,
    backoff: Backoff | None = None,
    registry: Registry = registry,
) -> Callable[[F], F]:
    """Declare the decorated function as the job `name`. The function itself stays as it is."""

    def declare(function: F) -> F:
        waits = exponential() if backoff is None else backoff
        registry.add(Handler(function, name=name, queue=queue, tries=tries, backoff=waits))
        return function

    return declare


def _arguments_type(function: Callable[..., Any]) -> type[msgspec.Struct]:
    """Make the type that holds the arguments of a function, from its signature."""
    fields: list[Any] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        if parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            fields.append((parameter.name, annotation, parameter.default))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
