"""What all limits have in common: whom they ask, and what becomes of a job that they turn away.

A job that is turned away is snoozed: it costs no attempt and counts as no failure. With `drop` it is left undone and
counts as done. When Redis cannot be asked the job is snoozed too, whatever `drop` says: it never runs without having
been let through. Where there is no worker (`dispatch_sync`, `run_job`) nobody is asked, and nothing is limited.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from delayq.core.errors import DelayqError
from delayq.core.events import JobLimited
from delayq.core.limit_names import check_key
from delayq.core.limiting import Who
from delayq.core.signals import TurnedAway
from delayq.core.when import duration_ms
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.questions import Steps, arun, run
from delayq.jobs.middleware.running_job import RunningJob

log = logging.getLogger("delayq.jobs")

Key: TypeAlias = str | int | Callable[[RunningJob], str | int | None]
"""Whose limit it is, known or asked of the job; None from the function: this job is not limited."""

AWAY_MS: Final = 5_000
"""After which a job comes back that nobody could be asked for."""


class Limited(ABC):
    """Middleware that may turn a job away. `release_after`: when it comes back; without it, when the limit says."""

    def __init__(self, release_after: str | timedelta | None, *, drop: bool) -> None:
        self._release_ms = None if release_after is None else duration_ms(release_after)
        self._drop = drop

    @abstractmethod
    def steps(self, job: RunningJob) -> Steps:
        """What to ask, and when to call the handler."""

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        limits = job.context.talk.limits
        return next(job) if limits is None else run(self.steps(job), limits, partial(next, job))

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        limits = job.context.talk.limits
        return await next(job) if limits is None else await arun(self.steps(job), limits, partial(next, job))

    def _turn_away(
        self, job: RunningJob, limit: str, key: str, wait_ms: int, settled: Callable[[], object] | None = None
    ) -> None:
        """Snooze the job, by raising that; or, with `drop`, return without a result."""
        named = f"{limit} ({key})" if key else limit
        context = job.context
        if self._drop:
            log.info("job %s (%s) is dropped: the limit %s", context.id, job.name, named)
            job.tell(JobLimited(context.id, job.name, context.queue, limit, key, None))
            return
        delay_ms = wait_ms if self._release_ms is None else self._release_ms
        log.info("job %s (%s) is snoozed for %d ms by the limit %s", context.id, job.name, delay_ms, named)
        job.tell(JobLimited(context.id, job.name, context.queue, limit, key, delay_ms))
        raise TurnedAway(timedelta(milliseconds=delay_ms), reason=f"snoozed by the limit {named}", settled=settled)

    def _unasked(self, job: RunningJob, limit: str, error: DelayqError) -> NoReturn:
        """Nobody could be asked."""
        delay_ms = spread(AWAY_MS)
        context = job.context
        log.warning("job %s (%s) is snoozed: the limit %s could not be asked: %s", context.id, job.name, limit, error)
        job.tell(JobLimited(context.id, job.name, context.queue, limit, "", delay_ms))
        raise TurnedAway(timedelta(milliseconds=delay_ms), reason=f"the limit {limit} could not be asked") from error


def who_of(job: RunningJob) -> Who:
    """The delivery that asks."""
    return Who(job.context.queue, job.context.id, job.context.token)


def key_of(key: Key, job: RunningJob) -> str | None:
    """The key for this job; None when it is not limited. Raises `InvalidInput` for what cannot be one."""
    found = key(job) if callable(key) else key
    return None if found is None else check_key(found)


def checked(key: Key) -> Key:
    """A key as it was declared; raises `InvalidInput` at once for what cannot be one."""
    return key if callable(key) else check_key(key)


def spread(delay_ms: float) -> int:
    """About so long, a fifth more or less, so that jobs turned away together do not come back together."""
    return int(delay_ms * random.uniform(0.8, 1.2))
