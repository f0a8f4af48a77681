"""Middleware that limits how many jobs run at the same time, or how many jobs start in a period.

    @job("mail.send", middleware=[Concurrency("mail", 5)])                    five jobs at a time
    @job("stock.count", middleware=[WithoutOverlapping(["warehouse"])])       one job at a time for each warehouse
    @job("sms.send", middleware=[RateLimited("sms", RateLimit.per_minute(60))])

A job that may not run waits, and then asks again; see LimitReached. This costs no attempt.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.core.control_flow import Discard, LimitReached
from delayq.core.display import shown
from delayq.core.errors import BackendError, InvalidInput
from delayq.core.limits import RateLimit, check_key, check_limit, check_limit_name, check_rates, key_of_text
from delayq.core.times import Duration, duration_ms
from delayq.jobs.context import JobContext
from delayq.jobs.middleware import CheckedMiddleware, Next, RunningJob
from delayq.jobs.models import plain_refs
from delayq.manager import current_manager

logger: Final = logging.getLogger("delayq.jobs")

LimitKey = str | Sequence[str] | Callable[[RunningJob], str]
"""A text, names of members of the payload (["warehouse"]), or a function that gets the running job and returns a text.
Each key of a limit is counted on its own."""

SHARED: Final = "delayq.shared"
"""The name of the limit of all middleware `WithoutOverlapping(key, shared=True)`."""

_rates: Final[dict[str, tuple[RateLimit, ...]]] = {}


def use_limit(name: str, rate: RateLimit | Sequence[RateLimit]) -> None:
    """Define the rates of a limit, for `RateLimited(name)`. Call this function in the module that declares the jobs.

    `rate`: one rate, or a list of up to ten rates. A job may run if each rate has a token left. A second call for
    the same name replaces the rates. Raises InvalidInput.

        use_limit("sms", [RateLimit.per_second(5), RateLimit.per_day(10_000)])
    """
    _rates[check_limit_name(name)] = check_rates(rate)


class Concurrency(CheckedMiddleware):
    """Lets at most `limit` jobs with this middleware run at the same time, counted over all workers.

    * `name`: the name of the limit. All jobs with this limit name share the limit.
    * `key`: each key has `limit` places of its own. Use a text, names of members of the payload (["customer"]), or a
      function that gets the RunningJob and returns a text; None = one key for all jobs.
    * `drop`: True = discard a job that may not run, instead of running it later.
    * `expire_after`: how long a job keeps its place at most, counted from the moment at which the job gets the place.
      When the handler ends, the place becomes free. If the job runs longer than `expire_after`, another job may start
      beside it. If the process of the job dies, the place stays taken until `expire_after` has passed, or until the job
      is run again and ends. Default: the timeout of the job, plus the `timeout_grace` of the worker and 8 s. A job
      without a timeout needs this argument.

    Raises InvalidInput for arguments that cannot be used.

        @job("mail.send", middleware=[Concurrency("mail", 5)])
    """

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        key: LimitKey | None = None,
        drop: bool = False,
        expire_after: Duration | None = None,
    ) -> None:
        self._name = check_limit_name(name)
        self._limit = check_limit(limit)
        self._key = _check_limit_key(key)
        self._drop = drop
        self._expire_ms = None if expire_after is None else _check_expire_after(expire_after)

    def check_job(self, job_name: str, timeout_ms: int | None, members: Collection[str] | None) -> None:
        """Raise InvalidInput if a job's place would never expire, or if the payload lacks a member that the key names.

        A place never expires if the declared timeout is 0 and the limit has no `expire_after`.
        """
        name = self._name or check_limit_name(job_name)
        if timeout_ms == 0 and self._expire_ms is None:
            raise _without_timeout(job_name, name)
        _check_members(self._key, job_name, members)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Call the handler while the job has a place."""
        context = job.context
        if not context.token:
            return next(job)
        name, key, expire_ms = self._question(job)
        limits, holder = current_manager().connection().client.limits, _holder_of(context)
        try:
            expires_ms = limits.acquire(name, self._limit, holder=holder, key=key, expire_ms=expire_ms)
        except BackendError as error:
            raise _unanswered(name, context, error) from error
        if expires_ms is None:
            raise _refusal(name, drop=self._drop)
        try:
            return next(job)
        finally:
            try:
                limits.release(name, holder=holder, key=key, expires_ms=expires_ms)
            except BackendError as error:
                _warn_unreleased(name, context, error)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Call an async handler while the job has a place."""
        context = job.context
        if not context.token:
            return await next(job)
        name, key, expire_ms = self._question(job)
        limits, holder = current_manager().connection().aclient.limits, _holder_of(context)
        try:
            expires_ms = await limits.acquire(name, self._limit, holder=holder, key=key, expire_ms=expire_ms)
        except BackendError as error:
            raise _unanswered(name, context, error) from error
        if expires_ms is None:
            raise _refusal(name, drop=self._drop)
        try:
            return await next(job)
        finally:
            try:
                await limits.release(name, holder=holder, key=key, expires_ms=expires_ms)
            except BackendError as error:
                _warn_unreleased(name, context, error)

    def _question(self, job: RunningJob) -> tuple[str, str, int]:
        """Return name and key of the limit, and the time in ms until a place expires. Raises InvalidInput."""
        name = self._name or job.context.name
        expire_ms = job.context.place_ms if self._expire_ms is None else self._expire_ms
        if not expire_ms:
            raise _without_timeout(job.context.name, name)
        return name, _key_of(self._key, job), expire_ms


class WithoutOverlapping(Concurrency):
    """Lets only one job of a name run at a time, or one job for each key.

    * `key`: names of members of the payload (["warehouse"]), a text, or a function that gets the RunningJob and returns
      a text; None = one key for all jobs.
    * `shared`: False = the name of the limit is the name of the job, so jobs with other names do not count. True = all
      jobs with this middleware, `shared=True` and the same key count. A shared limit needs a key.
    * `drop`, `expire_after`: see Concurrency.

    Raises InvalidInput for arguments that cannot be used.

        @job("stock.count", middleware=[WithoutOverlapping(["warehouse"])])
    """

    def __init__(
        self,
        key: LimitKey | None = None,
        *,
        shared: bool = False,
        drop: bool = False,
        expire_after: Duration | None = None,
    ) -> None:
        super().__init__(SHARED, 1, key=key, drop=drop, expire_after=expire_after)
        if not shared:
            self._name = ""
        elif key is None:
            raise InvalidInput(
                "shared is True, but key is None.", hint='Give a key, such as ["order_id"].', field="key"
            )


class RateLimited(CheckedMiddleware):
    """Lets jobs start only as fast as a rate allows, counted over all workers.

    * `name`: the name of the limit. Jobs with the same limit name, key and rate share a bucket of tokens.
    * `rate`: a rate, or a list of rates that must all allow the job; None = the rates of `use_limit`.
    * `key`, `drop`: see Concurrency.

    Each attempt that may run takes a token. Raises InvalidInput for arguments that cannot be used.

        @job("sms.send", middleware=[RateLimited("sms", RateLimit.per_minute(60))])
    """

    def __init__(
        self,
        name: str,
        rate: RateLimit | Sequence[RateLimit] | None = None,
        *,
        key: LimitKey | None = None,
        drop: bool = False,
    ) -> None:
        self._name = check_limit_name(name)
        self._rates = None if rate is None else check_rates(rate)
        self._key = _check_limit_key(key)
        self._drop = drop

    def check_job(self, job_name: str, timeout_ms: int | None, members: Collection[str] | None) -> None:
        """Raise InvalidInput if the payload of a job lacks a member that the key names."""
        _check_members(self._key, job_name, members)

    def check_start(self, job_name: str) -> None:
        """Raise InvalidInput if the limit has no rate, which a declaration cannot check: `use_limit` may come later."""
        self._rates_for(job_name)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Take a token, and call the handler."""
        if job.context.token:
            rates, key = self._question(job)
            try:
                is_granted = current_manager().connection().client.limits.take(self._name, rates, key=key)
            except BackendError as error:
                raise _unanswered(self._name, job.context, error) from error
            if not is_granted:
                raise _refusal(self._name, drop=self._drop)
        return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Take a token, and call an async handler."""
        if job.context.token:
            rates, key = self._question(job)
            try:
                is_granted = await current_manager().connection().aclient.limits.take(self._name, rates, key=key)
            except BackendError as error:
                raise _unanswered(self._name, job.context, error) from error
            if not is_granted:
                raise _refusal(self._name, drop=self._drop)
        return await next(job)

    def _question(self, job: RunningJob) -> tuple[Sequence[RateLimit], str]:
        return self._rates_for(job.context.name), _key_of(self._key, job)

    def _rates_for(self, job_name: str) -> Sequence[RateLimit]:
        rates = self._rates or _rates.get(self._name)
        if rates is None:
            raise InvalidInput(
                f"The limit {self._name!r} of the job {job_name!r} has no rate.",
                hint=f"Give RateLimited a rate, or call use_limit({self._name!r}, RateLimit.per_minute(60)) in the "
                "module that declares the job.",
                field="rate",
            )
        return rates


def _holder_of(context: JobContext) -> str:
    return f"{context.queue} {context.id}"


def _refusal(name: str, *, drop: bool) -> Exception:
    return Discard(f"the limit {name} is reached") if drop else LimitReached(name)


def _unanswered(name: str, context: JobContext, error: BackendError) -> LimitReached:
    """Log that the limit could not be asked, and return the signal that lets the job wait, even with `drop=True`."""
    logger.warning(
        "job %s (%s) waits, because the limit %s could not be asked: %s", context.id, context.name, name, error
    )
    return LimitReached(name)


def _warn_unreleased(name: str, context: JobContext, error: BackendError) -> None:
    logger.warning(
        "job %s (%s) keeps its place under the limit %s until the place expires, because it could not be freed: %s",
        context.id,
        context.name,
        name,
        error,
    )


def _without_timeout(job_name: str, limit: str) -> InvalidInput:
    return InvalidInput(
        f"The job {job_name!r} has the limit {limit!r}, but its timeout is 0, so its place would never expire.",
        hint='Give the job a timeout, or give the limit expire_after="1h".',
        field="timeout",
    )


def _check_expire_after(value: Duration) -> int:
    ms = duration_ms(value, field="expire_after")
    if ms < 1:
        raise InvalidInput(
            f"expire_after is {shown(value)}.", hint="Use a duration of 1 ms or more.", field="expire_after"
        )
    return ms


def _check_limit_key(key: LimitKey | None) -> LimitKey | None:
    if key is None or callable(key):
        return key
    if isinstance(key, str):
        return check_key(key)
    if isinstance(key, list | tuple) and key and all(isinstance(member, str) for member in key):
        return tuple(key)
    raise InvalidInput(
        f"The key {shown(key)} of a limit is not valid.",
        hint='Use a text, a list of members of the payload such as ["warehouse"], or a function.',
        field="key",
    )


def _check_members(key: LimitKey | None, job_name: str, members: Collection[str] | None) -> None:
    """Raise InvalidInput if a key names a member that the payload of a job does not have."""
    if members is None or isinstance(key, str) or not isinstance(key, Sequence):
        return
    for member in key:
        if member not in members:
            raise _no_member(job_name, member, members)


def _no_member(job_name: str, member: str, members: Collection[str]) -> InvalidInput:
    return InvalidInput(
        f"The limit key of the job {job_name!r} names the member {member!r}, but its payload does not have this "
        "member.",
        hint=f"Name members of the payload: {', '.join(members)}."
        if members
        else "Add this member to the payload, or give the limit another key.",
        field="key",
    )


def _key_of(key: LimitKey | None, job: RunningJob) -> str:
    """Return the key of a running job. Raises InvalidInput if a payload member is missing or a result is not text."""
    if key is None:
        return ""
    if isinstance(key, str):
        return key
    if callable(key):
        found = key(job)
        if not isinstance(found, str):
            raise InvalidInput(
                f"The function of the limit key returned {shown(found)}.", hint="Return a text.", field="key"
            )
        return key_of_text(found)
    return key_of_text(_text_of([plain_refs(_member(job, name)) for name in key]))


def _member(job: RunningJob, name: str) -> Any:
    members = job.data if isinstance(job.data, Mapping) else {}
    if name in members:
        return members[name]
    raise _no_member(job.context.name, name, list(members))


def _text_of(values: Sequence[Any]) -> str:
    """Return one text as it is, and all other values as JSON."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return msgspec.json.encode(values[0] if len(values) == 1 else values, enc_hook=str).decode()
