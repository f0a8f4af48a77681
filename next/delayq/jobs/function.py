"""Jobs as plain functions: `@job("order.close")`. The members of `data` arrive as keyword arguments."""

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from delayq.core.backoff import BackoffSpec, parse_backoff
from delayq.core.errors import InvalidInput, UnknownJob
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import Policy
from delayq.core.times import Duration, duration_ms

F = TypeVar("F", bound=Callable[..., Any])


class Handler:
    """A registered function, with what its declaration says about retries."""

    def __init__(self, function: Callable[..., Any], *, name: str, queue: str, policy: Policy) -> None:
        self.name = name
        self.queue = queue
        self.policy = policy
        self._function = function
        self._arguments = _arguments_type(function)
        self._decoder = msgspec.json.Decoder(self._arguments)

    def call(self, data: bytes) -> Any:
        """Call the function with the members of `data`, JSON, checked against its annotations."""
        arguments = self._decoder.decode(b"{}" if data == b"null" else data)
        return self._function(**{name: getattr(arguments, name) for name in self._arguments.__struct_fields__})


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
                f"No handler is declared for the job {name!r}.", hint="Import the module that declares it."
            ) from None

    def queues(self) -> list[str]:
        """List the queues of all registered jobs, sorted."""
        return sorted({handler.queue for handler in self._handlers.values()})


registry: Final = Registry()


def job(
    name: str,
    *,
    queue: str = "default",
    tries: int | None = None,
    backoff: BackoffSpec | None = None,
    retention: Duration | None = None,
    max_exceptions: int | None = None,
    registry: Registry = registry,
) -> Callable[[F], F]:
    """Declare the decorated function as the job `name`. The function itself stays as it is.

    `tries` (5; 0 = no limit) and `backoff` (exponential from 5 s) say how a failed attempt is tried again, `retention`
    how long the finished job is kept with its result, `max_exceptions` how many attempts may raise. Raises
    InvalidInput.
    """
    standard = Policy()
    policy = Policy(
        tries=standard.tries if tries is None else tries,
        backoff=standard.backoff if backoff is None else parse_backoff(backoff),
        retention_ms=0 if retention is None else duration_ms(retention, field="retention"),
        max_exceptions=max_exceptions,
    )

    def declare(function: F) -> F:
        registry.add(Handler(function, name=check_job_name(name), queue=check_queue(queue), policy=policy))
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
