"""Operations on failed jobs: find one job by its id; list, group, retry and delete the failed jobs of one queue."""

import time
from collections.abc import AsyncIterator, Sequence

from delayq.core.errors import DelayqError, FoundElsewhere, InvalidInput, JobNotFailed, JobNotFound
from delayq.core.failed import spacing
from delayq.core.failure_groups import FailedGroups, Grouping
from delayq.core.job_search import JobSearch, Moment
from delayq.core.job_spec import check_whole_number
from delayq.core.times import Duration, duration_ms
from delayq.core.views import JobInfo, Retried
from delayq.redis.calls import upkeep
from delayq.redis.operations.base import RefT, Told
from delayq.redis.operations.jobs import JobOperations
from delayq.redis.operations.search import SearchOperations


class FailedOperations(JobOperations[RefT], SearchOperations[RefT]):
    """Operations on failed jobs. They use the operations on single jobs, and searches."""

    async def find_failed(self, id: str, *, queues: Sequence[str] | None = None) -> JobInfo:
        """Find a failed job by its id.

        `queues`: the queues to search. None = the default queue, and if the job is not there, all queues.

        Raises JobNotFound, JobNotFailed, FoundElsewhere if there are too many queues to search, and InvalidInput if
        jobs with this id have failed in several queues.
        """
        found = await self._with_id(id, queues)
        failed = [job for job in found if job.state == "failed"]
        if len(failed) > 1:
            where = ", ".join(job.queue for job in failed)
            raise InvalidInput(
                f"The job {id!r} has failed in several queues: {where}.", hint="Name one queue with queues=."
            )
        if not found:
            where = f"the queue {', '.join(queues)!r}" if queues else "any queue"
            raise JobNotFound(f"No job {id!r} is known in {where}.", hint="`delayq failed list` lists the ids.")
        if not failed:
            error = JobNotFailed(
                f"The job {id!r} in the queue {found[0].queue!r} is {found[0].state}, not failed.",
                hint=f"Use `delayq show {id} --queue {found[0].queue}`.",
            )
            error.queue = found[0].queue
            raise error
        return failed[0]

    async def iter_failed(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        signature: str | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Iterate over the failed jobs of a queue, with their failures, the earliest failure first.

        The arguments select the jobs. Except for `queue`, None means no restriction:

            queue        queue of the jobs; None = the default queue
            name         pattern for the name, such as 'order.*'
            tag          jobs with this tag
            since        jobs that failed at this time or later: '2026-11-21T15:00:00Z', an aware datetime, or how long
                         ago ('2h', a timedelta)
            until        jobs that failed at this time or earlier, written as `since`
            signature    jobs of one group; `failed_groups` returns the signatures

        Jobs that fail after the call are left out. Raises InvalidInput.
        """
        async for job in self._failed(queue, name=name, tag=tag, since=since, until=until, signature=signature):
            yield job

    async def failed_groups(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 10_000,
    ) -> FailedGroups:
        """Group the failed jobs of a queue by job name and kind of error. The largest group comes first.

        `queue`, `name`, `tag`, `since` and `until` select the jobs as in `iter_failed`. `limit` is the maximum number
        of jobs to read, 1 or more; if there are more jobs, `is_complete` of the result is False. Raises InvalidInput.
        """
        check_whole_number("limit", limit, least=1)
        grouping, looked = Grouping(), 0
        async for job in self._failed(queue, name=name, tag=tag, since=since, until=until, signature=None):
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
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        signature: str | None = None,
    ) -> AsyncIterator[Retried]:
        """Retry failed jobs. Each step of the iteration retries one job, whose attempts are counted from 0 again.

        `queue`, `name`, `tag`, `since`, `until` and `signature` select the jobs as in `iter_failed`. `rate` ('10/s',
        '600/m', '5000/h') limits the number of jobs that are retried in that time, at even intervals; None = no limit.
        After a late retry, the next retries are not faster.

        Yields a Retried with the id of each job. If a job cannot be retried, its `error` has the reason, and the
        iteration continues with the next job. Raises InvalidInput.
        """
        pause = spacing(rate)
        next_at = 0.0
        async for job in self._failed(queue, name=name, tag=tag, since=since, until=until, signature=signature):
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
        for shard in await self._session.shards.read(self._queue(queue)):
            is_more = True
            while is_more:
                call = upkeep.prune(self._session.keys, shard, keep_failed_ms=keep_ms)
                pruned = await self._session.executor.run(call)
                is_more = pruned.failed == upkeep.PRUNE_LIMIT
                forgotten += pruned.failed
                if progress is not None:
                    progress(forgotten)
        return forgotten

    async def _with_id(self, job_id: str, queues: Sequence[str] | None) -> list[JobInfo]:
        searched: Sequence[str | None] = queues or [None]
        try:
            found = [await self.get(job_id, queue=queue) for queue in searched]
        except FoundElsewhere as error:
            if not error.queues:
                raise
            found = [await self.get(job_id, queue=queue) for queue in error.queues]
        return [job for job in found if job is not None]

    async def _failed(
        self,
        queue: str | None,
        *,
        name: str | None,
        tag: str | None,
        since: Moment | None,
        until: Moment | None,
        signature: str | None,
    ) -> AsyncIterator[JobInfo]:
        """Yield the matching failed jobs of a queue, earliest first. Raises the error if the queue cannot be read."""
        search = JobSearch(
            state="failed",
            queues=[self._queue(queue)],
            name=name,
            tag=tag,
            since=since,
            until=until,
            signature=signature,
            newest_first=False,
        )
        async for page in self.iter_search(search):
            for job in page.jobs:
                yield job
            for error in page.errors.values():
                raise error
