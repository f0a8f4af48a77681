"""`Skip`: middleware that leaves a job undone."""

from __future__ import annotations

import logging
from typing import Any, Self

from delayq.core.events import JobSkipped
from delayq.jobs.middleware.conditions import Condition, aholds, holds
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob

log = logging.getLogger("delayq.jobs")


class Skip:
    """Does not call the handler when a condition holds; the job then counts as done, with no result."""

    def __init__(self, condition: Condition, holds: bool) -> None:
        self._condition = condition
        self._holds = holds

    @classmethod
    def when(cls, condition: Condition) -> Self:
        """Skip the job if it holds."""
        return cls(condition, True)

    @classmethod
    def unless(cls, condition: Condition) -> Self:
        """Skip the job if it does not."""
        return cls(condition, False)

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        return None if self._skips(job, holds(self._condition, job)) else next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        return None if self._skips(job, await aholds(self._condition, job)) else await next(job)

    def _skips(self, job: RunningJob, held: bool) -> bool:
        if held is self._holds:
            log.info("job %s (%s) is skipped by its middleware", job.context.id, job.name)
            job.tell(JobSkipped(job.context.id, job.name, job.context.queue))
        return held is self._holds
