"""Operations on queues, and on all workers at once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from delayq.core.display import shown
from delayq.core.errors import BackendError, CallRefused, InvalidInput, NodeError, NotConfirmed, QueueNotFound
from delayq.core.job_spec import check_whole_number
from delayq.core.names import check_queue
from delayq.core.options import SHORTEST_LEASE_MS
from delayq.core.shards import check_shards, shard_names
from delayq.core.times import Duration, duration_ms
from delayq.core.views import Control, DayCounts, QueueStats, QueueView, Upcoming, WorkerInfo
from delayq.redis.calls import inspect
from delayq.redis.calls import queues as calls
from delayq.redis.calls.call import Call, value_of
from delayq.redis.calls.queues import END, UNTIL_ENDED, Switch
from delayq.redis.change_shards import change_shards, must_be_empty, read_holds
from delayq.redis.operations.base import OperationsBase, RefT, Told
from delayq.redis.worker import worker_registry

MAX_SPANS: Final = 10_000
"""Maximum number of spans of `upcoming`."""


class QueueOperations(OperationsBase[RefT]):
    """Operations on queues, and on all workers at once."""

    async def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return await self._session.executor.run(inspect.list_queues(self._session.keys))

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """Count the jobs in each state, of one queue or of all queues (None).

        Returns a QueueStats for each queue. If all queues are read, and one of them cannot be read, the `error` of this
        queue has the reason, and its counts are 0, because they were not read. If the one queue that you name cannot be
        read, its error is raised. Raises InvalidInput.
        """
        session = self._session
        names = await self.queues() if queue is None else [check_queue(queue)]
        totals: dict[str, QueueStats | BackendError] = {}
        left = names
        while left:
            # One trip, because each trip to a node that hangs takes seconds. The trip is repeated for a queue whose
            # number of shards has changed.
            shards = {name: shard_names(name, session.shards.known(name)) for name in left}
            trip: list[Call[Any]] = session.shards.calls(left)
            trip += [inspect.stats(session.keys, shard) for name in left for shard in shards[name]]
            outcomes = await session.executor.run_all(trip)
            session.shards.keep(left, outcomes[: len(left)])
            counts = iter(outcomes[len(left) :])
            totals |= {name: _total(name, [next(counts) for _ in shards[name]]) for name in left}
            left = [name for name in left if session.shards.known(name) != len(shards[name])]
        if queue is not None:
            return [value_of(totals[queue])]
        return [
            QueueStats(queue=name, error=str(total)) if isinstance(total, CallRefused | NodeError) else value_of(total)
            for name, total in totals.items()
        ]

    async def upcoming(self, queue: str | None = None, *, span: Duration = "1m", spans: int = 60) -> Upcoming:
        """Count the scheduled jobs of a queue by the time at which they become due.

        `queue`: None = the default queue. `span`: length of one span of time ('1m', a timedelta), at least 1 ms.
        `spans`: number of spans, 1 to 10,000. The result has the number of jobs in each span from now on, the number of
        overdue jobs, and the number of jobs after the last span. Raises InvalidInput.
        """
        name = self._queue(queue)
        span_ms = duration_ms(span, field="span")
        if span_ms < 1:
            raise InvalidInput(f"span is {shown(span)}, less than 1 ms.", hint="Use a time such as 1m.", field="span")
        check_whole_number("spans", spans, least=1, most=MAX_SPANS)
        shards, now_ms = await self._session.shards.read_with_time(name)
        bounds = [now_ms + n * span_ms for n in range(spans + 1)]
        totals = [0] * (len(bounds) + 1)
        for shard in shards:
            outcomes = await self._session.executor.run_all(inspect.count_due(self._session.keys, shard, bounds))
            totals = [total + value_of(outcome) for total, outcome in zip(totals, outcomes, strict=True)]
        overdue, *counts, later = totals
        return Upcoming(name, now_ms, span_ms, overdue, counts, later)

    async def pause(self, queue: str | None = None, *, duration: Duration | None = None) -> int:
        """Pause a queue, so that workers start no new jobs of this queue. Running jobs continue.

        `queue`: None = the default queue. A queue can be paused before its first job. `duration`: length of the pause
        ('1h', a timedelta); None = until `resume`. Returns the end of the pause in epoch ms; 0 = until `resume`. Raises
        InvalidInput.
        """
        return await self._pause(self._queue(queue), UNTIL_ENDED if duration is None else _positive_ms(duration))

    async def resume(self, queue: str | None = None) -> None:
        """End the pause of a queue. `queue`: None = the default queue."""
        await self._pause(self._queue(queue), END)

    async def pause_all(self, *, duration: Duration | None = None, reason: str = "") -> Control:
        """Pause all workers, so that they start no new jobs. Running jobs continue.

        `duration`: length of the pause ('1h', a timedelta); None = until `resume_all`. `reason`: text for people who
        look at the state of the workers. Returns the new state. Raises InvalidInput.
        """
        return await self._control("pause", UNTIL_ENDED if duration is None else _positive_ms(duration), reason)

    async def resume_all(self) -> Control:
        """End the pause of all workers, and return the new state."""
        return await self._control("pause", END)

    async def start_maintenance(self, *, duration: Duration | None = None, reason: str = "") -> Control:
        """Pause all workers for maintenance, except for workers that were started with `--force`.

        `duration`: length of the maintenance ('1h', a timedelta); None = until `end_maintenance`. `reason`, the result
        and the errors are as in `pause_all`.
        """
        return await self._control("maintenance", UNTIL_ENDED if duration is None else _positive_ms(duration), reason)

    async def end_maintenance(self) -> Control:
        """End the maintenance, and return the new state."""
        return await self._control("maintenance", END)

    async def restart_workers(self) -> Control:
        """Ask all workers to finish their running jobs and to exit, so that their process manager starts them again."""
        return await self._control("restart", UNTIL_ENDED)

    async def control(self) -> Control:
        """Read the pause, the maintenance and the last restart request that apply to all workers."""
        return await self._control("", UNTIL_ENDED)

    async def workers(self) -> list[WorkerInfo]:
        """List the child processes of all live workers. Processes of a worker that died stay listed for up to 30 s.

        If the cluster node that stores the description of a process does not answer, the WorkerInfo of this process has
        only the name, and the reason in `about["error"]`.
        """
        names = await self._session.executor.run(worker_registry.list_names(self._session.keys))
        calls = [worker_registry.read_worker(self._session.keys, name) for name in names]
        outcomes = await self._session.executor.run_all(calls)
        found = [
            WorkerInfo(name, [], {"error": str(outcome)}) if isinstance(outcome, NodeError) else value_of(outcome)
            for name, outcome in zip(names, outcomes, strict=True)
        ]
        return [worker for worker in found if worker is not None]

    async def history(self, queue: str | None = None, *, days: int = 30) -> list[DayCounts]:
        """Return how many jobs of a queue were scheduled, acknowledged, failed and so on, for each of the last days.

        `queue`: None = the default queue. `days`: number of days, 1 to 90. The oldest day comes first. A day is a day
        in UTC, and days without such jobs are left out. A janitor writes the counts every few seconds. Raises
        InvalidInput.
        """
        name = self._queue(queue)
        check_whole_number("days", days, least=1, most=inspect.DAYS_KEPT)
        shards, now_ms = await self._session.shards.read_with_time(name)
        totals: dict[str, Counter[str]] = {}
        for shard in shards:
            call = inspect.history(self._session.keys, shard, days=days, now_ms=now_ms)
            for day in await self._session.executor.run(call):
                totals.setdefault(day.day, Counter()).update(day.counters)
        return [DayCounts(day, dict(totals[day])) for day in sorted(totals)]

    async def clear(self, queue: str | None = None, *, progress: Told | None = None) -> int:
        """Delete the scheduled and ready jobs of a queue. Running jobs continue. Return the number of deleted jobs.

        `queue`: None = the default queue. `progress`: called from time to time with the number of jobs deleted so far.
        Raises InvalidInput. If a reply is lost, the call is not repeated, and OutcomeUnknown is raised.
        """
        name = self._queue(queue)
        deleted = 0
        for shard in await self._session.shards.read(name):
            while count := await self._session.executor.run(calls.clear(self._session.keys, shard)):
                deleted += count
                if progress is not None:
                    progress(deleted)
        return deleted

    async def queue_set(self, queue: str, *, lease: Duration | None = None, shards: int | None = None) -> QueueView:
        """Set the lease, the number of shards, or both. None = no change.

            lease     how long a delivered job belongs to a worker that does not renew the lease: at least 100 ms
                      ('30s', a timedelta). Workers use the new lease after at most a third of the old lease. Until
                      then, a job may run twice if the new lease is shorter.
            shards    number of parts into which the queue is divided, 1 to 64. You can change it only while the queue
                      has no jobs, and no records of ended jobs that a relay has not handled yet. After a change, the
                      workers of the queue exit as after `restart_workers`, so that their process manager starts them
                      again.

        The queue is created if it does not exist. Returns the new settings. Raises QueueInUse if `shards` cannot be
        changed now. Raises InvalidInput.
        """
        name = check_queue(queue)
        lease_ms = None if lease is None else _lease_ms(lease)
        count = None if shards is None else check_shards(shards)
        if lease_ms is None and count is None:
            raise InvalidInput("lease= and shards= are both missing.", hint="Give at least one of them.", field="lease")
        if count is not None:
            await change_shards(self._session, name, count)
            await self._session.executor.run(calls.list_queue(self._session.keys, name))
        try:
            if lease_ms is not None:
                await self._set_lease(name, lease_ms)
        except NotConfirmed as error:
            error.done = (await self.queue_show(name),)
            raise
        return await self.queue_show(name)

    async def _set_lease(self, queue: str, lease_ms: int) -> None:
        default_ms = self._session.options.lease_ms
        for shard in await self._session.shards.read(queue):
            call = calls.configure(self._session.keys, shard, default_lease_ms=default_ms, lease_ms=lease_ms)
            await self._session.write(call, shard, may_create=True)

    async def queue_show(self, queue: str) -> QueueView:
        """Read the settings of a queue, and the number of jobs in each state. Raises QueueNotFound and InvalidInput."""
        name = check_queue(queue)
        (stats,) = await self.stats(name)
        if not stats.lease_ms and name not in await self.queues():
            raise QueueNotFound(f"No queue {name!r} is known.", hint="`delayq stats` lists the queues.")
        shards = await self._session.shards.read(name)
        holds = await read_holds(self._session, shards)
        return QueueView(name, stats.lease_ms, len(shards), stats.paused_until_ms, holds)

    async def queue_remove(self, queue: str) -> None:
        """Delete an empty queue. If it has several shards, their number is first set to 1.

        If the queue has jobs, or records of ended jobs that a relay has not handled yet, QueueInUse is raised, with
        their numbers. Raises InvalidInput.
        """
        name = check_queue(queue)
        keys = self._session.keys
        shards = await self._session.shards.read(name)
        must_be_empty(name, await read_holds(self._session, shards))
        if len(shards) > 1:
            await change_shards(self._session, name, 1)
        # Remove the name from the list before the keys. A producer that schedules a job in between adds it again.
        await self._session.executor.run(calls.unlist_queue(keys, name))
        self._session.list_again(name)
        holds = await self._session.executor.run(calls.remove(keys, name, look=False))
        if any(calls.holds_by_name(holds).values()):
            await self._session.executor.run(calls.list_queue(keys, name))
            must_be_empty(name, calls.holds_by_name(holds))

    async def _pause(self, queue: str, for_ms: int) -> int:
        lease_ms = self._session.options.lease_ms
        until_ms = 0
        # The first shard comes last, because workers read the pause there.
        for shard in reversed(await self._session.shards.read(queue)):
            call = calls.pause(self._session.keys, shard, for_ms=for_ms, lease_ms=lease_ms)
            if for_ms == END:
                until_ms = await self._session.executor.run(call)
            else:
                until_ms = await self._session.list_and_run(call, shard)  # `stats` then shows the pause of a new queue
        return until_ms

    async def _control(self, what: Switch, for_ms: int, reason: str = "") -> Control:
        return await self._session.executor.run(calls.control(self._session.keys, what, for_ms=for_ms, reason=reason))


def _positive_ms(duration: Duration) -> int:
    return max(duration_ms(duration, field="duration"), 1)


def _lease_ms(lease: Duration) -> int:
    lease_ms = duration_ms(lease, field="lease")
    if lease_ms < SHORTEST_LEASE_MS:
        raise InvalidInput(f"lease {lease} is too short.", hint="Use at least 100ms.", field="lease")
    return lease_ms


def _total(queue: str, of_shards: Sequence[QueueStats | BackendError]) -> QueueStats | BackendError:
    """Add up the figures of the shards of a queue. If a shard could not be read, return its error."""
    rows: list[QueueStats] = []
    for outcome in of_shards:
        if isinstance(outcome, BackendError):
            return outcome
        rows.append(outcome)
    first = rows[0]
    if len(rows) == 1:
        return first
    counters: Counter[str] = Counter()
    for row in rows:
        counters.update(row.counters)
    return QueueStats(
        queue=queue,
        scheduled=sum(row.scheduled for row in rows),
        ready=sum(row.ready for row in rows),
        reserved=sum(row.reserved for row in rows),
        failed=sum(row.failed for row in rows),
        completed=sum(row.completed for row in rows),
        paused_until_ms=first.paused_until_ms,
        overdue_oldest_ms=max(row.overdue_oldest_ms for row in rows),
        lease_ms=first.lease_ms,
        mover_tick_ms=min(row.mover_tick_ms for row in rows),
        now_ms=first.now_ms,
        counters=dict(counters),
    )
