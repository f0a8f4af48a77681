"""`Release`: middleware that puts a job back before it starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self

from delayq.core.signals import Snooze
from delayq.core.when import duration_ms
from delayq.jobs.middleware.conditions import Condition, aholds, holds
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob


class Release:
    """Snoozes a job when a condition holds: it is looked at again after `delay`, and no attempt is lost."""

    def __init__(self, condition: Condition, holds: bool, delay: str | timedelta) -> None:
        duration_ms(delay)
        self._condition = condition
        self._holds = holds
        self._delay = delay

    @classmethod
    def when(cls, condition: Condition, delay: str | timedelta) -> Self:
        """Put the job back if it holds. Raises `InvalidDuration` at once when the delay is none."""
        return cls(condition, True, delay)

    @classmethod
    def unless(cls, condition: Condition, delay: str | timedelta) -> Self:
        """Put the job back if it does not."""
        return cls(condition, False, delay)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        self._look(holds(self._condition, job))
        return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        self._look(await aholds(self._condition, job))
        return await next(job)

    def _look(self, held: bool) -> None:
        if held is self._holds:
            raise Snooze(self._delay, reason="put back by its middleware")
