"""`SkipIfBatchCancelled`: middleware that leaves the members of a cancelled batch undone."""

from __future__ import annotations

import logging
from typing import Any

from delayq.core.events import JobSkipped
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob

log = logging.getLogger("delayq.jobs")


class SkipIfBatchCancelled:
    """Does not call the handler of a job whose batch was cancelled; the job then counts as done, with no result.

    A worker asks that by itself before it starts a member, and a member that may not start is skipped. This asks once
    more where it stands: behind other middleware that may take its time. Follows Laravel's middleware of that name.
    """

    def handle(self, job: RunningJob, next: Next) -> Any:
        """Around plain handlers."""
        batch = job.context.batch
        return _skipped(job) if batch is not None and batch.cancelled() else next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        """Around async ones."""
        batch = job.context.batch
        return _skipped(job) if batch is not None and await batch.acancelled() else await next(job)


def _skipped(job: RunningJob) -> None:
    log.info("job %s (%s) is skipped: its batch was cancelled", job.context.id, job.name)
    job.tell(JobSkipped(job.context.id, job.name, job.context.queue))
