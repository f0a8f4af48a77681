"""Operations on many failed jobs of one queue: list, group, retry, delete."""

import time
from collections.abc import AsyncIterator
from typing import Final

from delayq.core.errors import DelayqError
from delayq.core.failed import FailedFilter, Moment, failed_filter, spacing
from delayq.core.failure_groups import FailedGroups, Grouping
from delayq.core.job_spec import check_whole_number
from delayq.core.times import Duration, duration_ms
from delayq.core.views import JobInfo, Retried
from delayq.redis.calls import inspect, upkeep
from delayq.redis.operations.base import RefT, Told
from delayq.redis.operations.jobs import JobOperations

AT_A_TIME: Final = 50
"""Maximum number of jobs whose failures are read in one call. A failure can have 20 kB, and each of its up to nine
earlier failures can have 20 kB too."""


class FailedOperations(JobOperations[RefT]):
    """Operations on many failed jobs of a queue, which use the operations on single jobs."""

    async def iter_failed(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        signature: str | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Iterate over the failed jobs of a queue, with their failures, the earliest failure first.

        The arguments select the jobs. Except for `queue`, None means no restriction:

            queue        queue of the jobs; None = the default queue
            name         pattern for the name, such as 'order.*'
            since        jobs that failed at this time or later: '2026-11-21T15:00:00Z', an aware datetime, or how long
                         ago ('2h', a timedelta)
            until        jobs that failed at this time or earlier, written as `since`
            signature    jobs of one group; `failed_groups` returns the signatures

        Jobs that fail after the call are left out. Raises InvalidInput.
        """
        wanted = await self._filter(name, since, until, signature)
        async for job in self._iter(queue, wanted, with_failures=True):
            yield job

    async def failed_groups(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 10_000,
    ) -> FailedGroups:
        """Group the failed jobs of a queue by job name and kind of error. The largest group comes first.

        `queue`, `name`, `since` and `until` select the jobs as in `iter_failed`. `limit` is the maximum number of jobs
        to read, 1 or more; if there are more jobs, `is_complete` of the result is False. Raises InvalidInput.
        """
        check_whole_number("limit", limit, least=1)
        wanted = await self._filter(name, since, until, None)
        grouping, looked = Grouping(), 0
        async for job in self._iter(queue, wanted, with_failures=True):
            if looked == limit:
                return FailedGroups(grouping.groups(), looked, is_complete=False)
            grouping.add(job)
            looked += 1
        return FailedGroups(grouping.groups(), looked, is_complete=True)

    async def retry_failed(
        self,
        queue: str | None = None,
        *,
        rate: str | None = None,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        signature: str | None = None,
    ) -> AsyncIterator[Retried]:
        """Retry failed jobs. Each step of the iteration retries one job, whose attempts are counted from 0 again.

        `queue`, `name`, `since`, `until` and `signature` select the jobs as in `iter_failed`. `rate` ('10/s', '600/m',
        '5000/h') limits the number of jobs that are retried in that time, at even intervals; None = no limit. After a
        late retry, the next retries are not faster.

        Yields a Retried with the id of each job. If a job cannot be retried, its `error` has the reason, and the
        iteration continues with the next job. Raises InvalidInput.
        """
        pause = spacing(rate)
        next_at = 0.0
        wanted = await self._filter(name, since, until, signature)
        async for job in self._iter(queue, wanted, with_failures=signature is not None):
            await self._session.executor.sleep(max(next_at - time.monotonic(), 0.0))
            next_at = time.monotonic() + pause
            try:
                await self.retry(job.id, queue=job.queue)
            except DelayqError as error:
                yield Retried(job.id, error)
            else:
                yield Retried(job.id)

    async def prune_failed(self, queue: str | None = None, *, older: Duration, progress: Told | None = None) -> int:
        """Delete the jobs of a queue that failed more than `older` ago ('30d'; '0s' = all). Return their number.

        `queue`: None = the default queue. `progress`: called from time to time with the number of jobs deleted so far.
        Raises InvalidInput.
        """
        keep_ms = duration_ms(older, field="older")
        forgotten = 0
        while True:
            call = upkeep.prune(self._session.keys, self._queue(queue), keep_failed_ms=keep_ms)
            pruned = await self._session.executor.run(call)
            forgotten += pruned.failed
            if progress is not None:
                progress(forgotten)
            if pruned.failed < upkeep.PRUNE_LIMIT:
                return forgotten

    async def _filter(
        self, name: str | None, since: Moment | None, until: Moment | None, signature: str | None
    ) -> FailedFilter:
        now_ms = await self._session.executor.run(inspect.server_time_ms())
        return failed_filter(name=name, since=since, until=until, signature=signature, now_ms=now_ms)

    async def _iter(self, queue: str | None, wanted: FailedFilter, *, with_failures: bool) -> AsyncIterator[JobInfo]:
        async for page in self._pages(queue, wanted):
            if not with_failures:
                for job in page:
                    yield job
                continue
            for start in range(0, len(page), AT_A_TIME):
                part = page[start : start + AT_A_TIME]
                call = inspect.failures_of(self._session.keys, self._queue(queue), part)
                for job in await self._session.executor.run(call):
                    if wanted.fits_failure(job):
                        yield job

    async def _pages(self, queue: str | None, wanted: FailedFilter) -> AsyncIterator[list[JobInfo]]:
        cursor = wanted.cursor
        while True:
            page = await self.list_jobs("failed", queue=queue, cursor=cursor, limit=inspect.MAX_PAGE)
            yield [job for job in page.jobs if wanted.fits(job) and not wanted.is_over(job)]
            cursor = page.cursor
            if not cursor or (page.jobs and wanted.is_over(page.jobs[-1])):
                return
