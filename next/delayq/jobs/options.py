"""Options: those that a job declares for its name, and those that a dispatch gives to one job.

The first of these that says something counts:

    said       CloseOrder(…).dispatch(queue="vip"), .on_queue("vip")
    declared   class CloseOrder(Job, queue="orders"), its bases, @job("order.close", queue="orders")
    routed     queue and connection only: [routes] in delayq.toml, Manager.route
    settings   of the connection, then of the application
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypedDict

import msgspec

from delayq.core.backoff import Backoff, BackoffSpec, parse_backoff
from delayq.core.declared import SendOptions
from delayq.core.display import did_you_mean, shown
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import Limit, check_tags, check_whole_number
from delayq.core.names import check_job_name, check_queue
from delayq.core.outcome import OnTimeout, Policy
from delayq.core.states import OnConflict
from delayq.core.times import Duration, Instant, duration_ms, instant_ms, is_instant


class Declared(TypedDict, total=False):
    """Options of `@job` and `@handles`; see JobOptions. None leaves an option to the routes and the settings."""

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


class ClassDeclared(Declared, total=False):
    """Options of a job class: a name too. Without one, the name of the class is the name of the job."""

    name: str


class Said(TypedDict, total=False):
    """Options of a dispatch; see JobSpec. Each option goes before the declared one."""

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


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that a job declares; None = nothing. Durations are milliseconds.

    A worker reads `tries` (5; 0 = no limit), `backoff` (exponential from 5 s), `timeout_ms` (60 s; 0 = none),
    `on_timeout`, `max_exceptions` and `retention_ms` (0) when it runs the job, so a new release changes them for jobs
    that wait already. The others count where the job is dispatched; `deadline` and `retry_until` travel as times.
    """

    queue: str | None = None
    connection: str | None = None
    delay: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    tags: Sequence[str] | None = None
    tries: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    on_timeout: OnTimeout | None = None
    max_exceptions: int | None = None
    retention_ms: int | None = None

    def policy(self, standard: Policy) -> Policy:
        """Return how the job is tried: what it declares, over what holds for all jobs."""
        declared = {name: value for name in _OF_WORKER if (value := getattr(self, name)) is not None}
        return replace(standard, **declared)

    def when_sent(self) -> SendOptions:
        """Return what counts when the job is sent."""
        return SendOptions(
            queue=self.queue, delay=self.delay, deadline=self.deadline, retry_until=self.retry_until, tags=self.tags
        )

    def over(self, declared: Mapping[str, Any], *, job_name: str) -> Self:
        """Return these options with others declared over them; raises InvalidInput."""
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
    """Refuse an option that no dispatch has; raises InvalidInput."""
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


def _read_limit(field: str) -> Any:
    """Return a check of a duration or a point in time. How far ahead it lies is seen at the dispatch."""

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
    if option in _NOT_YET:
        return f"delayq has no {_NOT_YET[option]} yet."
    if _OF_OTHER_QUEUES.get(option) in known:
        return f"Did you mean {_OF_OTHER_QUEUES[option]}?"
    return did_you_mean(option, known) or f"Known are {', '.join(sorted(known))}."


_OF_OTHER_QUEUES: Final = {"countdown": "delay", "eta": "at", "expires": "deadline", "max_retries": "tries"}
_NOT_YET: Final = {
    "cron": "recurring jobs",
    "every": "recurring jobs",
    "rate_limit": "rate limits",
    "unique": "unique jobs",
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
    "tries": ("tries", lambda value: check_whole_number("tries", value, least=0)),
    "backoff": ("backoff", parse_backoff),
    "timeout": ("timeout_ms", lambda value: duration_ms(value, field="timeout")),
    "on_timeout": ("on_timeout", _read_on_timeout),
    "max_exceptions": ("max_exceptions", lambda value: check_whole_number("max_exceptions", value, least=1)),
    "retention": ("retention_ms", lambda value: duration_ms(value, field="retention")),
}
