"""`@job`: a plain function becomes the handler of a job name.

The members of the payload arrive as keyword arguments, checked against the annotations. A
parameter annotated `JobContext` gets the context instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar, get_type_hints

import msgspec

from delayq.core.backoff import Backoff, BackoffSpec, parse_backoff
from delayq.core.errors import ConfigError, InvalidPayload
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import OnTimeout
from delayq.core.when import duration_ms
from delayq.jobs.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


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
        self.is_async = inspect.iscoroutinefunction(function)
        self._context, self._read = _binding(name, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {self.function.__module__}.{self.function.__qualname__}>"

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Call the function on a payload; for an async function, the coroutine to await.

        Raises `InvalidPayload` when the payload does not fit the parameters. `context` is only asked when wanted.
        """
        arguments = self._read(data)
        if self._context:
            arguments[self._context] = context()
        return self.function(**arguments)  # type: ignore[call-arg]  # checked against the signature by `_read`


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

    if tries is not None and tries < 0:
        raise ConfigError(f"The job {name!r} has tries={tries}.", hint="Use 0 for no limit, or a positive number.")
    options = HandlerOptions(
        queue=None if queue is None else check_queue(queue),
        tries=tries,
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


def _binding(name: str, function: Callable[..., Any]) -> tuple[str, Callable[[msgspec.Raw], dict[str, Any]]]:
    """Which parameter takes the context, and how a payload becomes the other arguments."""
    hints = get_type_hints(function)
    context, open_ended = "", False
    fields: list[tuple[Any, ...]] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = hints.get(parameter.name, Any)
        if parameter.kind in _POSITIONAL:
            raise ConfigError(
                f"The job {name!r} takes {parameter.name!r} by position; payload members arrive by name.",
                hint="Use plain or keyword-only parameters.",
            )
        if kind is JobContext:
            context = parameter.name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, msgspec.field(default_factory=partial(_same, parameter.default))))
    return context, _reader(name, fields, open_ended)


def _same(value: Any) -> Any:
    """A default as the function has it; made by a factory, because Python shares defaults and so do we."""
    return value


def _reader(name: str, fields: list[tuple[Any, ...]], open_ended: bool) -> Callable[[msgspec.Raw], dict[str, Any]]:
    required = sorted(fields, key=len)
    shape = msgspec.defstruct("Payload", required, forbid_unknown_fields=not open_ended, kw_only=True)
    members = tuple(field[0] for field in fields)
    decode = msgspec.json.Decoder(shape).decode
    decode_any = msgspec.json.Decoder(dict[str, Any]).decode

    def read(data: msgspec.Raw) -> dict[str, Any]:
        raw = b"{}" if bytes(data) == b"null" else data
        try:
            payload = decode(raw)
            extra = decode_any(raw) if open_ended else {}
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise InvalidPayload(f"The payload does not fit the parameters of {name!r}: {error}.") from None
        return {**extra, **{member: getattr(payload, member) for member in members}}

    return read
