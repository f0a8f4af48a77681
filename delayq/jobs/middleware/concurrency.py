"""`Concurrency` and `WithoutOverlapping`: so many at a time, over all workers.

What holds a place is the delivery itself. It is given back when the handler ends; when the worker vanishes, it is free
as soon as the job is taken back, which is after the lease. Nothing has to be renewed, and nothing can get stuck.

A job that finds no place is snoozed, and then waits: whoever gives one back runs the job that has waited longest, at
once. The snooze itself is only for the case that this gets lost.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from delayq.core.errors import ConfigError, DelayqError
from delayq.core.limit_names import check_limit, limit_of_job
from delayq.core.limiting import Acquire, LineUp, Place, Taken, Vacate, Who
from delayq.core.shown import shown
from delayq.core.when import duration_ms
from delayq.jobs.middleware.limited import Key, Limited, checked, key_of, spread, who_of
from delayq.jobs.middleware.questions import CALL, Steps
from delayq.jobs.middleware.running_job import RunningJob

log = logging.getLogger("delayq.jobs")

MOST_PLACES: Final = 10_000
LOOK_MS: Final = 5_000
LONGEST_LOOK_MS: Final = 300_000


class Places(Limited):
    """Lets a job through while it holds a place."""

    def __init__(
        self,
        key: Key,
        *,
        release_after: str | timedelta | None,
        drop: bool,
        expire_after: str | timedelta | None,
    ) -> None:
        super().__init__(release_after, drop=drop)
        self._key = checked(key)
        self._expire_ms = 0 if expire_after is None else max(1, duration_ms(expire_after))

    def steps(self, job: RunningJob) -> Steps:
        """Take a place, call the handler, give the place back."""
        place = self._place(job)
        if place is None:
            return (yield CALL)
        who = who_of(job)
        try:
            taken: Taken = yield Acquire(who, place)
        except DelayqError as error:
            self._unasked(job, place.name, error)
        if not taken.taken:
            limits = job.context.talk.limits
            settled = None if limits is None else partial(limits.ask, LineUp(who, place))
            return self._turn_away(job, place.name, place.key, _look_again_ms(taken.waiting, place.limit), settled)
        try:
            result = yield CALL
        except GeneratorExit:
            raise
        except BaseException:
            yield from _leave(who, place)
            raise
        yield from _leave(who, place)
        return result

    def _place(self, job: RunningJob) -> Place | None:
        """The place this job needs; None when it is not limited."""
        key, limit = key_of(self._key, job), self._limit_for(job)
        if key is None or limit is None:
            return None
        return Place(self._name_for(job), key, limit, self._expire_ms)

    def _limit_for(self, job: RunningJob) -> int | None:
        """How many places there are; None: the job is not limited."""
        return 1

    @abstractmethod
    def _name_for(self, job: RunningJob) -> str:
        """What the limit is called."""


class Concurrency(Places):
    """At most `limit` jobs at a time for each key of the limit `name`, whatever these jobs are called.

        middleware=[Concurrency("warehouse-api", 7)]
        middleware=[Concurrency("imports", 2, key=lambda job: job.fields["account"])]

    `limit` may be a function of the job; None from it, or from `key`: that job is not limited. `release_after` and
    `drop` as in `Limited`. `expire_after`: who runs longer has lost its place, though it still runs. Raises
    `ConfigError` and `InvalidInput` for what cannot be used.
    """

    def __init__(
        self,
        name: str,
        limit: int | Callable[[RunningJob], int | None],
        *,
        key: Key = "",
        release_after: str | timedelta | None = None,
        drop: bool = False,
        expire_after: str | timedelta | None = None,
    ) -> None:
        super().__init__(key, release_after=release_after, drop=drop, expire_after=expire_after)
        self._name = check_limit(name)
        self._limit = limit if callable(limit) else _checked_limit(name, limit)

    def __repr__(self) -> str:
        return f"Concurrency({self._name!r})"

    def _limit_for(self, job: RunningJob) -> int | None:
        if not callable(self._limit):
            return self._limit
        limit = self._limit(job)
        return None if limit is None else _checked_limit(self._name, limit)

    def _name_for(self, job: RunningJob) -> str:
        return self._name


class WithoutOverlapping(Places):
    """One job at a time for each key, among the jobs of the same name; with `shared` among all that say so.

        middleware=[WithoutOverlapping(lambda job: job.fields["order_id"])]

    `release_after`, `drop` and `expire_after` as in `Concurrency`.
    """

    def __init__(
        self,
        key: Key = "",
        *,
        shared: bool = False,
        release_after: str | timedelta | None = None,
        drop: bool = False,
        expire_after: str | timedelta | None = None,
    ) -> None:
        super().__init__(key, release_after=release_after, drop=drop, expire_after=expire_after)
        self._shared = shared

    def __repr__(self) -> str:
        return "WithoutOverlapping()"

    def _name_for(self, job: RunningJob) -> str:
        return "overlap" if self._shared else limit_of_job("overlap", job.name)


def _checked_limit(name: str, limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PLACES:
        raise ConfigError(
            f"The limit {name} has {shown(limit)} places.", hint=f"Give a whole number from 1 to {MOST_PLACES:,}."
        )
    return limit


def _leave(who: Who, place: Place) -> Steps:
    """Give the place back. When that fails, settling the job does it: its entry ends then."""
    try:
        yield Vacate(who, place)
    except DelayqError as error:
        log.warning("job %s could not give back its place of the limit %s yet: %s", who.id, place.name, error)


def _look_again_ms(waiting: int, limit: int) -> int:
    """When a job that waits comes back by itself: the later, the more wait before it, as wake-ups seldom get lost."""
    return spread(min(LOOK_MS * (1 + waiting / limit), LONGEST_LOOK_MS))
