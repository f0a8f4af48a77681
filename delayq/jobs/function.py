"""`@job`: a plain function becomes the handler of a job name.

The members of the payload arrive as keyword arguments, checked against the annotations. A
parameter annotated `JobContext` gets the context instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from delayq.core.backoff import Backoff, BackoffSpec, parse_backoff
from delayq.core.errors import ConfigError
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import OnTimeout
from delayq.core.when import duration_ms
from delayq.jobs.binding import bind
from delayq.jobs.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """What a handler asks for; None leaves it to the job or the worker. Durations in ms."""

    queue: str | None = None
    tries: int | None = None
    backoff: Backoff | None = None
    retention_ms: int | None = None
    timeout_ms: int | None = None
    on_timeout: OnTimeout | None = None


class JobFunction(Generic[P, R]):
    """A function that handles jobs of one name; still callable as the function it wraps."""

    def __init__(self, name: str, function: Callable[P, R], options: HandlerOptions) -> None:
        self.name = check_job_name(name)
        self.function = function
        self.options = options
        self.is_async = _is_async(function)
        self._context, self._read = bind(name, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {place_of(self.function)}>"

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Call the function on a payload; for an async function, the answer is a coroutine to await.

        Raises `InvalidPayload` when the payload does not fit the parameters. `context` is only asked when wanted.
        """
        arguments = self._read(data)
        if self._context:
            arguments[self._context] = context()
        return self.function(**arguments)  # type: ignore[call-arg]  # checked against the signature by `_read`


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; known before the call, so that a worker can choose where to run it."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def place_of(function: Callable[..., Any]) -> str:
    """Where a function was written: module, name and line. A partial, or an object that can be called, shows itself."""
    name, code = getattr(function, "__qualname__", None), getattr(function, "__code__", None)
    return f"{function.__module__}.{name}:{code.co_firstlineno}" if name and code else repr(function)


def job(
    name: str,
    *,
    queue: str | None = None,
    tries: int | None = None,
    backoff: BackoffSpec | None = None,
    retention: str | timedelta | None = None,
    timeout: str | timedelta | None = None,
    on_timeout: OnTimeout | str | None = None,
) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
    """Make a function the handler of the jobs called `name`, and register it.

    `queue` is served by `delayq work` without `--queue`. `tries`, `backoff`, `retention` and `timeout` (None: the
    worker's, "0s": none) hold for jobs that bring none of their own; `on_timeout` is "retry" or "fail". Raises
    `ConfigError` for a function whose parameters cannot be filled by name.
    """
    from delayq.jobs.registry import current  # the registry holds these; it stands above this module

    options = HandlerOptions(
        queue=None if queue is None else check_queue(queue),
        tries=_check_tries(name, tries),
        backoff=None if backoff is None else parse_backoff(backoff),
        retention_ms=None if retention is None else duration_ms(retention),
        timeout_ms=None if timeout is None else duration_ms(timeout),
        on_timeout=None if on_timeout is None else _on_timeout(name, on_timeout),
    )

    def register(function: Callable[P, R]) -> JobFunction[P, R]:
        handler = JobFunction(name, function, options)
        current().add(handler)
        return handler

    return register


def _on_timeout(name: str, word: str) -> OnTimeout:
    try:
        return OnTimeout(word)
    except ValueError:
        raise ConfigError(f"The job {name!r} has on_timeout={word!r}.", hint='Use "retry" or "fail".') from None


def _check_tries(name: str, tries: Any) -> int | None:
    if tries is None or (isinstance(tries, int) and not isinstance(tries, bool) and tries >= 0):
        return tries
    raise ConfigError(f"The job {name!r} has tries={tries!r}.", hint="Use 0 for no limit, or a positive whole number.")
