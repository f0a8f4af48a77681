"""Operations on many failed jobs, once."""

import time
from collections.abc import AsyncIterator

from delayq.core.errors import DelayqError
from delayq.core.failed import Moment, failed_filter, spacing
from delayq.core.times import Duration, duration_ms
from delayq.core.views import JobInfo, Retried
from delayq.redis.commands import inspect, upkeep
from delayq.redis.job_operations import RefT
from delayq.redis.operations import Operations
from delayq.redis.queue_operations import Told


class FailedOperations(Operations[RefT]):
    """All operations; those on failed jobs of a queue are here."""

    async def iter_failed(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Go through the failed jobs of a queue, in the order in which they failed.

        `name` is a pattern such as 'order.*'; `since` and `until` are points in time, or how long ago. Jobs that fail
        after the call are left out. `get` tells the failure of each. Raises InvalidInput.
        """
        now_ms = await self._session.run(inspect.server_time_ms())
        wanted = failed_filter(name=name, since=since, until=until, now_ms=now_ms)
        cursor = wanted.cursor
        while True:
            page = await self.list_jobs("failed", queue=queue, cursor=cursor, limit=inspect.MAX_PAGE)
            for job in page.jobs:
                if wanted.is_over(job):
                    return
                if wanted.fits(job):
                    yield job
            cursor = page.cursor
            if not cursor:
                return

    async def retry_failed(
        self,
        queue: str | None = None,
        *,
        rate: str | None = None,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> AsyncIterator[Retried]:
        """Give failed jobs all their tries again, one with each step of the iteration.

        Which jobs: see `iter_failed`. `rate` ('10/s', '600/m') is the most that are retried in that time; time that was
        lost is not made up for. A job that cannot be retried is answered with its error, and the next one follows.
        """
        pause = spacing(rate)
        next_at = 0.0
        async for job in self.iter_failed(queue, name=name, since=since, until=until):
            await self._session.executor.sleep(max(next_at - time.monotonic(), 0.0))
            next_at = time.monotonic() + pause
            try:
                await self.retry(job.id, queue=job.queue)
            except DelayqError as error:
                yield Retried(job.id, error)
            else:
                yield Retried(job.id)

    async def prune_failed(self, queue: str | None = None, *, older: Duration, progress: Told | None = None) -> int:
        """Forget the jobs of a queue that failed longer ago than `older` ('30d'; '0s' = all). Returns how many.

        `progress` is called now and then with the number so far.
        """
        keep_ms = duration_ms(older, field="older")
        forgotten = 0
        while True:
            call = upkeep.prune(self._session.keys, self._queue(queue), keep_failed_ms=keep_ms)
            pruned = await self._session.run(call)
            forgotten += pruned.failed
            if progress is not None:
                progress(forgotten)
            if pruned.failed < upkeep.PRUNE_LIMIT:
                return forgotten
