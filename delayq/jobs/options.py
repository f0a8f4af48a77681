"""What a job says of itself where it is declared, and what is said of one where it is dispatched.

A value is looked for in this order; the first that says something counts:

    dispatched    CloseOrder(…).dispatch(queue="vip"), .on_queue("vip"): travels in the envelope
    declared      class CloseOrder(Job, queue="orders"), its bases, @job("order.close", queue="orders")
    routed        connection and queue only: manager.route, [routes]
    the connection's, then the application's settings; then the default
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias, TypedDict

from delayq.core.backoff import Backoff, BackoffSpec, parse_backoff
from delayq.core.debounce import Debounce
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.names import check_queue
from delayq.core.outcome import OnTimeout, Policy
from delayq.core.shown import shown
from delayq.core.spec import Delay, Instant, Limit, check_tags
from delayq.core.unique import Unique
from delayq.core.when import duration_ms, instant_ms
from delayq.jobs.middleware.forms import Middleware, steps_of
from delayq.jobs.references.reference import OnMissing, read_on_missing

Tags: TypeAlias = Sequence[str] | Callable[[Any], Sequence[str]]
"""Tags, or a function that is given the job and answers with them."""


class Declared(TypedDict, total=False):
    """What a class or `@job` may declare; see `HandlerOptions`."""

    connection: str | None
    queue: str | None
    delay: Delay | None
    tries: int | None
    backoff: BackoffSpec | None
    timeout: Delay | None
    on_timeout: OnTimeout | str | None
    deadline: Limit | None
    retry_until: Limit | None
    max_exceptions: int | None
    retention: Delay | None
    unique: str | Unique | None
    debounce: Debounce | None
    tags: Tags | None
    after_commit: bool | None
    encrypted: bool | None
    on_missing: OnMissing | str | None
    middleware: Sequence[Middleware] | None


class ClassOptions(Declared, total=False):
    """What a class may declare: a name besides (its own name without one)."""

    name: str


class Dispatched(TypedDict, total=False):
    """What a dispatch may say; see `JobSpec`. Each goes before what the job declares.

    `within` is the database session whose transaction the job belongs to: it is sent after that one's commit.
    """

    connection: str | None
    queue: str | None
    delay: Delay | None
    at: Instant | None
    tz: str | None
    fold: int | None
    id: str | None
    on_conflict: str
    tries: int | None
    backoff: BackoffSpec | None
    timeout: Delay | None
    deadline: Limit | None
    retry_until: Limit | None
    max_exceptions: int | None
    retention: Delay | None
    unique: str | Unique | None
    debounce: Debounce | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    after_commit: bool | None
    encrypted: bool | None
    within: Any


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """What a handler asks for; None leaves it to the job, the routes or the worker. Durations in ms.

    `tries`, `backoff`, `timeout_ms`, `on_timeout`, `max_exceptions`, `retention_ms`, `on_missing` and `middleware` are
    read by the worker, so a new release changes them for jobs that wait. The others count where the job is dispatched:
    `delay`, `encrypted`, `unique`, `debounce`, and `deadline` and `retry_until`, which travel as points in time.
    """

    queue: str | None = None
    tries: int | None = None
    backoff: Backoff | None = None
    retention_ms: int | None = None
    timeout_ms: int | None = None
    on_timeout: OnTimeout | None = None
    max_exceptions: int | None = None
    connection: str | None = None
    delay: Delay | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    tags: Tags | None = None
    after_commit: bool | None = None
    encrypted: bool | None = None
    on_missing: OnMissing | None = None
    middleware: Sequence[Middleware] | None = None
    unique: str | Unique | None = None
    debounce: Debounce | None = None

    @property
    def counts_when_sent(self) -> bool:
        """Whether any of it has to be known where a job is sent, for a client that is given a name alone."""
        return any(getattr(self, member) is not None for member in _WHEN_SENT)

    def over(self, base: Policy) -> Policy:
        """How jobs of this handler are tried, where `base` is the worker's own policy."""
        return replace(
            base,
            tries=base.tries if self.tries is None else self.tries,
            backoff=base.backoff if self.backoff is None else self.backoff,
            retention_ms=base.retention_ms if self.retention_ms is None else self.retention_ms,
            timeout_ms=base.timeout_ms if self.timeout_ms is None else self.timeout_ms,
            on_timeout=base.on_timeout if self.on_timeout is None else self.on_timeout,
            max_exceptions=base.max_exceptions if self.max_exceptions is None else self.max_exceptions,
        )


_WHEN_SENT = ("queue", "delay", "deadline", "retry_until", "tags", "encrypted", "unique", "debounce")
_EXAMPLES: Mapping[str, str] = {"unique": 'Unique(key=["order_id"])', "debounce": 'Debounce("30s")'}
NAMES = tuple(ClassOptions.__annotations__)
SAYABLE = frozenset(Dispatched.__annotations__)
"""What a dispatch may say."""
_END_OF_TIME_MS = 253_402_300_799_999
_READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "queue": ("queue", check_queue),
    "backoff": ("backoff", parse_backoff),
    "timeout": ("timeout_ms", duration_ms),
    "retention": ("retention_ms", duration_ms),
    "on_missing": ("on_missing", read_on_missing),
}


def refuse_unsayable(name: str, said: Mapping[str, Any]) -> NoReturn:
    """Raises `InvalidInput` for the options of a dispatch of the job `name` that nobody knows."""
    unknown = min(option for option in said if option not in SAYABLE)
    near = get_close_matches(unknown, sorted(SAYABLE), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(sorted(SAYABLE))}."
    raise InvalidInput(f"A dispatch of the job {name!r} has no option {unknown!r}.", hint=hint)


def declare(name: str, base: HandlerOptions, given: Mapping[str, Any]) -> HandlerOptions:
    """The options of the job `name`: what it was `given`, over its `base`. None says nothing.

    Raises `ConfigError` for an option nobody knows, and `InvalidInput` for a value that cannot be used.
    """
    changes: dict[str, Any] = {}
    for option, value in given.items():
        if option not in NAMES:
            raise ConfigError(f"The job {name!r} has an option {option!r}.", hint=f"Known are {', '.join(NAMES)}.")
        if value is not None:
            member, read = _READERS.get(option, (option, None))
            changes[member] = _checked(name, option, value) if read is None else read(value)
    return _together(name, replace(base, **changes))


def _checked(name: str, option: str, value: Any) -> Any:
    if option == "on_timeout":
        return _on_timeout(name, value)
    if option in ("after_commit", "encrypted") and not isinstance(value, bool):
        raise ConfigError(f"The job {name!r} has {option}={value!r}.", hint="Use True or False.")
    if option == "middleware":
        steps_of(value)
        return tuple(value)
    least = {"tries": 0, "max_exceptions": 1}.get(option)
    if least is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        hint = "Use 0 for no limit, or a positive whole number." if least == 0 else "Use a positive whole number."
        raise ConfigError(f"The job {name!r} has {option}={value!r}.", hint=hint)
    if option == "connection" and not isinstance(value, str):
        raise ConfigError(f"The job {name!r} has connection={shown(value)}.", hint="Give the name of a connection.")
    if option == "tags" and not callable(value):
        return _tags(name, value)
    kinds = {"unique": (str, Unique), "debounce": (Debounce,)}.get(option)
    if kinds is not None and (not isinstance(value, kinds) or value == ""):
        hint = f"An example: {option}={_EXAMPLES[option]}."
        raise ConfigError(f"The job {name!r} has {option}={value!r}.", hint=hint)
    if option in ("delay", "deadline", "retry_until"):
        _check_time(name, option, value)
    return value


def _tags(name: str, value: Any) -> Sequence[str]:
    try:
        return check_tags(value)
    except InvalidInput as refused:
        raise ConfigError(f"The job {name!r} declares wrong tags: {refused.message}", hint=refused.hint) from refused


def _check_time(name: str, option: str, value: Any) -> None:
    """A delay is a duration; a limit may be a point in time as well. How far ahead it lies is seen at the dispatch."""
    try:
        if option == "delay" or not (isinstance(value, datetime) or (isinstance(value, str) and "-" in value)):
            duration_ms(value)
        else:
            instant_ms(value, now_ms=_END_OF_TIME_MS)
    except InvalidInput as refused:
        text = f"The job {name!r} declares a wrong {option}: {refused.message}"
        raise type(refused)(text, hint=refused.hint) from refused


def _together(name: str, options: HandlerOptions) -> HandlerOptions:
    """Raises `ConfigError` for what cannot go together."""
    if options.debounce is not None and (options.unique is not None or options.delay is not None):
        other = "unique" if options.unique is not None else "delay"
        raise ConfigError(f"The job {name!r} declares debounce= and {other}=.", hint="Drop one of them.")
    return options


def _on_timeout(name: str, word: str) -> OnTimeout:
    try:
        return OnTimeout(word)
    except ValueError:
        raise ConfigError(f"The job {name!r} has on_timeout={word!r}.", hint='Use "retry" or "fail".') from None
