"""Options of jobs. A declaration sets them for all jobs of a name, and a dispatch for one job.

The first of these sources that has a value is used:

    dispatch      CloseOrder(…).dispatch(queue="vip"), .on_queue("vip")
    declaration   class CloseOrder(Job, queue="orders"), its base classes, @job("order.close", queue="orders")
    routes        for queue and connection only: [routes] in delayq.toml, Manager.route
    settings      the table [connections.NAME] of the connection, then the settings outside of such tables
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypedDict, get_args

import msgspec

from delayq.core.backoff import Backoff, BackoffSpec, parse_backoff
from delayq.core.declared import SendOptions
from delayq.core.display import did_you_mean, shown
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import Limit, check_bool, check_tags, check_whole_number
from delayq.core.models import OnMissing
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import OnTimeout, Policy
from delayq.core.states import OnConflict
from delayq.core.times import Duration, Instant, duration_ms, instant_ms, is_instant
from delayq.core.unique import Unique, check_unique
from delayq.jobs.middleware import AnyMiddleware, check_middleware


class Declared(TypedDict, total=False):
    """Options of `@job` and `@handles`; see JobOptions. None = not declared."""

    queue: str | None
    connection: str | None
    delay: Duration | None
    tries: int | None
    backoff: BackoffSpec | None
    timeout: Duration | None
    on_timeout: OnTimeout | None
    deadline: Limit | None
    retry_until: Limit | None
    max_exceptions: int | None
    retention: Duration | None
    tags: Sequence[str] | None
    unique: str | Unique | None
    after_commit: bool | None
    encrypted: bool | None
    middleware: Sequence[AnyMiddleware] | None
    on_missing: OnMissing | None


class ClassDeclared(Declared, total=False):
    """Options of a job class, with `name` in addition. Without `name`, the job has the name of the class."""

    name: str


class Said(TypedDict, total=False):
    """Options of a dispatch; see `Sendable.dispatch`. They override the declared options."""

    queue: str | None
    connection: str | None
    delay: Duration | None
    at: Instant | None
    tz: str | None
    fold: int | None
    id: str | None
    on_conflict: OnConflict
    tries: int | None
    backoff: BackoffSpec | None
    timeout: Duration | None
    deadline: Limit | None
    retry_until: Limit | None
    max_exceptions: int | None
    retention: Duration | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    unique: str | Unique | None
    after_commit: bool | None
    within: Any
    encrypted: bool | None


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that a job declares; None = not declared.

    `timeout_ms` and `retention_ms` are milliseconds. `delay`, `deadline` and `retry_until` are kept as they were given.

    * A worker applies `tries`, `backoff`, `timeout_ms`, `on_timeout`, `max_exceptions` and `retention_ms` when it runs
      the job. So if a new release of the application declares other values, these values also apply to jobs that were
      sent before, unless the dispatch set the option. Without a declaration, the settings apply. The defaults of the
      settings: 5 tries (0 = no limit), exponential backoff from 5 s, a timeout of 60 s (0 = none), retention 0.
    * A worker runs `middleware` around the handler.
    * `after_commit`: a dispatch sends the job after the commit of a database transaction. `within`, an option of the
      dispatch, names the transaction.
    * `on_missing` applies when a worker loads a model that does not exist. The default is "fail".
    * The producer applies the other options when it dispatches the job. `deadline` and `retry_until` are stored in the
      envelope as points in time.
    """

    queue: str | None = None
    connection: str | None = None
    delay: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    tags: Sequence[str] | None = None
    unique: str | Unique | None = None
    encrypted: bool | None = None
    tries: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    on_timeout: OnTimeout | None = None
    max_exceptions: int | None = None
    retention_ms: int | None = None
    after_commit: bool | None = None
    middleware: Sequence[AnyMiddleware] = ()
    on_missing: OnMissing | None = None

    def policy(self, standard: Policy) -> Policy:
        """Return `standard`, overridden by the declared values."""
        declared = {name: value for name in _OF_WORKER if (value := getattr(self, name)) is not None}
        return replace(standard, **declared)

    def when_sent(self) -> SendOptions:
        """Return the options that apply when a job is dispatched."""
        return SendOptions(
            queue=self.queue,
            connection=self.connection,
            delay=self.delay,
            deadline=self.deadline,
            retry_until=self.retry_until,
            tags=self.tags,
            unique=self.unique,
            encrypted=self.encrypted,
        )

    def over(self, declared: Mapping[str, Any], *, job_name: str) -> Self:
        """Return these options, overridden by the values of `declared`; raises InvalidInput."""
        changes: dict[str, Any] = {}
        for option, value in declared.items():
            if option not in _READERS:
                raise InvalidInput(
                    f"The job {job_name!r} declares the option {option!r}, which does not exist.",
                    hint=_hint_for(option, _READERS),
                    field=option,
                )
            if value is not None:
                member, read = _READERS[option]
                changes[member] = _read(read, value, option, job_name)
        return msgspec.structs.replace(self, **changes)


def check_said(said: Mapping[str, Any], *, job_name: str) -> None:
    """Raise InvalidInput for an option that a dispatch does not have."""
    for option in said:
        if option not in Said.__annotations__:
            raise InvalidInput(
                f"A dispatch of the job {job_name!r} has no option {option!r}.",
                hint=_hint_for(option, Said.__annotations__),
                field=option,
            )


def _read(read: Any, value: Any, option: str, job_name: str) -> Any:
    try:
        return read(value)
    except InvalidInput as error:
        raise InvalidInput(
            f"The job {job_name!r} cannot be declared: {error.message}", hint=error.hint, field=option
        ) from None


def _read_on_timeout(value: Any) -> OnTimeout:
    if value not in ("retry", "fail"):
        raise InvalidInput(f"on_timeout is {shown(value)}.", hint="Use 'retry' or 'fail'.", field="on_timeout")
    word: OnTimeout = value
    return word


def _read_on_missing(value: Any) -> OnMissing:
    if value not in get_args(OnMissing):
        raise InvalidInput(f"on_missing is {shown(value)}.", hint="Use 'fail' or 'discard'.", field="on_missing")
    word: OnMissing = value
    return word


def _read_limit(field: str) -> Any:
    """Return a function that checks a duration or a point in time.

    The function accepts points in time that are more than ten years ahead. A dispatch refuses them.
    """

    def read(value: Any) -> Any:
        if is_instant(value):
            instant_ms(value, now_ms=_FAR_AHEAD_MS, field=field)
        else:
            duration_ms(value, field=field)
        return value

    return read


def _read_delay(value: Any) -> Any:
    duration_ms(value, field="delay")
    return value


def _hint_for(option: str, known: Mapping[str, Any]) -> str:
    if option == "rate_limit":
        return 'Declare the job with middleware=[RateLimited("sms", RateLimit.per_minute(60))].'
    if option in _NOT_YET:
        return f"delayq has no {_NOT_YET[option]} yet."
    if _OF_OTHER_QUEUES.get(option) in known:
        return f"Did you mean {_OF_OTHER_QUEUES[option]}?"
    return did_you_mean(option, known) or f"Known are {', '.join(sorted(known))}."


_OF_OTHER_QUEUES: Final = {"countdown": "delay", "eta": "at", "expires": "deadline", "max_retries": "tries"}
_NOT_YET: Final = {
    "cron": "recurring jobs",
    "every": "recurring jobs",
}


_FAR_AHEAD_MS: Final = 2**50
_OF_WORKER: Final = ("tries", "backoff", "timeout_ms", "on_timeout", "max_exceptions", "retention_ms")
_READERS: Final[Mapping[str, tuple[str, Any]]] = {
    "queue": ("queue", check_queue),
    "connection": ("connection", check_job_name),
    "delay": ("delay", _read_delay),
    "deadline": ("deadline", _read_limit("deadline")),
    "retry_until": ("retry_until", _read_limit("retry_until")),
    "tags": ("tags", check_tags),
    "unique": ("unique", check_unique),
    "encrypted": ("encrypted", lambda value: check_bool("encrypted", value)),
    "tries": ("tries", lambda value: check_whole_number("tries", value, least=0)),
    "backoff": ("backoff", parse_backoff),
    "timeout": ("timeout_ms", lambda value: duration_ms(value, field="timeout")),
    "on_timeout": ("on_timeout", _read_on_timeout),
    "max_exceptions": ("max_exceptions", lambda value: check_whole_number("max_exceptions", value, least=1)),
    "retention": ("retention_ms", lambda value: duration_ms(value, field="retention")),
    "after_commit": ("after_commit", lambda value: check_bool("after_commit", value)),
    "middleware": ("middleware", check_middleware),
    "on_missing": ("on_missing", _read_on_missing),
}
