"""Operations on queues, and on all workers at once."""

from typing import Final

from delayq.core.display import shown
from delayq.core.errors import CallRefused, InvalidInput, NodeError, NotConfirmed, QueueInUse, QueueNotFound
from delayq.core.job_spec import check_whole_number
from delayq.core.names import check_queue
from delayq.core.times import Duration, duration_ms
from delayq.core.views import HOLDS_TEXT, Control, DayCounts, QueueStats, QueueView, Upcoming, WorkerInfo
from delayq.redis.calls import inspect
from delayq.redis.calls import queues as calls
from delayq.redis.calls.call import value_of
from delayq.redis.calls.queues import END, UNTIL_ENDED, Holds, Switch
from delayq.redis.operations.base import OperationsBase, RefT, Told
from delayq.redis.worker import worker_registry

MAX_SPANS: Final = 10_000
"""Maximum number of spans of `upcoming`."""

SHORTEST_LEASE_MS: Final = 100


class QueueOperations(OperationsBase[RefT]):
    """Operations on queues, and on all workers at once."""

    async def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return await self._session.executor.run(inspect.list_queues(self._session.keys))

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """Count the jobs in each state, of one queue or of all queues (None).

        Returns a QueueStats for each queue. If all queues are read and one of them cannot be read, the `error` of this
        queue has the reason, and its counts are meaningless. Raises InvalidInput.
        """
        if queue is not None:
            return [await self._session.executor.run(inspect.stats(self._session.keys, check_queue(queue)))]
        names = await self.queues()
        outcomes = await self._session.executor.run_all([inspect.stats(self._session.keys, name) for name in names])
        return [
            QueueStats(queue=name, error=outcome.message)
            if isinstance(outcome, CallRefused | NodeError)
            else value_of(outcome)
            for name, outcome in zip(names, outcomes, strict=True)
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
            raise InvalidInput(f"span is {shown(span)}.", hint="Use a length of time such as 1m.", field="span")
        check_whole_number("spans", spans, least=1, most=MAX_SPANS)
        now_ms = await self._session.executor.run(inspect.server_time_ms())
        bounds = [now_ms + n * span_ms for n in range(spans + 1)]
        outcomes = await self._session.executor.run_all(inspect.count_due(self._session.keys, name, bounds))
        overdue, *counts, later = [value_of(outcome) for outcome in outcomes]
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
        """List the child processes of all live workers. A process that died stays on the list for up to 30 s.

        If the node of a cluster that has a description does not answer, the process has only its name, and `error` in
        `about` has the reason.
        """
        names = await self._session.executor.run(worker_registry.list_names(self._session.keys))
        calls = [worker_registry.read_worker(self._session.keys, name) for name in names]
        outcomes = await self._session.executor.run_all(calls)
        found = [
            WorkerInfo(name, [], {"error": outcome.message}) if isinstance(outcome, NodeError) else value_of(outcome)
            for name, outcome in zip(names, outcomes, strict=True)
        ]
        return [worker for worker in found if worker is not None]

    async def history(self, queue: str | None = None, *, days: int = 30) -> list[DayCounts]:
        """Return the daily counts of events in a queue for the last `days` days, the oldest day first.

        `queue`: None = the default queue. `days`: 1 to 90. A day is a day in UTC, and days without events are left out.
        A janitor writes the counts every few seconds. Raises InvalidInput.
        """
        name = self._queue(queue)
        check_whole_number("days", days, least=1, most=inspect.DAYS_KEPT)
        now_ms = await self._session.executor.run(inspect.server_time_ms())
        return await self._session.executor.run(inspect.history(self._session.keys, name, days=days, now_ms=now_ms))

    async def clear(self, queue: str | None = None, *, progress: Told | None = None) -> int:
        """Delete the scheduled and ready jobs of a queue. Running jobs continue. Return the number of deleted jobs.

        `queue`: None = the default queue. `progress`: called from time to time with the number of jobs deleted so far.
        Raises InvalidInput. If a reply is lost, the call is not repeated, and OutcomeUnknown is raised.
        """
        name = self._queue(queue)
        deleted = 0
        while count := await self._session.executor.run(calls.clear(self._session.keys, name)):
            deleted += count
            if progress is not None:
                progress(deleted)
        return deleted

    async def queue_set(self, queue: str, *, lease: Duration) -> QueueView:
        """Set the lease of a queue: how long a delivered job belongs to a worker that does not renew the lease.

        `lease`: at least 100 ms ('30s', a timedelta). Workers use the new lease after at most a third of the old lease.
        Until then, a job may run twice if the new lease is shorter. The queue is created if it does not exist. Returns
        the new settings. Raises InvalidInput.
        """
        name = check_queue(queue)
        lease_ms = duration_ms(lease, field="lease")
        if lease_ms < SHORTEST_LEASE_MS:
            raise InvalidInput(f"lease {lease} is too short.", hint="Use at least 100ms.", field="lease")
        call = calls.configure(
            self._session.keys, name, default_lease_ms=self._session.options.lease_ms, lease_ms=lease_ms
        )
        try:
            await self._session.write(call, name, may_create=True)
        except NotConfirmed as error:
            error.done = (await self.queue_show(name),)
            raise
        return await self.queue_show(name)

    async def queue_show(self, queue: str) -> QueueView:
        """Read the settings of a queue, and the number of jobs in each state. Raises QueueNotFound and InvalidInput."""
        name = check_queue(queue)
        (stats,) = await self.stats(name)
        if not stats.lease_ms:
            raise QueueNotFound(f"No queue {name!r} is known.", hint="`delayq stats` lists the queues.")
        holds = await self._session.executor.run(calls.remove(self._session.keys, name, look=True))
        return QueueView(name, stats.lease_ms, 1, stats.paused_until_ms, _by_name(holds))

    async def queue_remove(self, queue: str) -> None:
        """Delete a queue that has no jobs.

        If the queue has jobs, QueueInUse is raised, with the numbers of jobs. Raises InvalidInput.
        """
        name = check_queue(queue)
        keys = self._session.keys
        _must_be_empty(name, await self._session.executor.run(calls.remove(keys, name, look=True)))
        # Remove the name from the list first, because a producer that schedules a job in between adds it again.
        await self._session.executor.run(calls.unlist_queue(keys, name))
        self._session.list_again(name)
        holds = await self._session.executor.run(calls.remove(keys, name, look=False))
        if any(_by_name(holds).values()):
            await self._session.executor.run(calls.list_queue(keys, name))
            _must_be_empty(name, holds)

    async def _pause(self, queue: str, for_ms: int) -> int:
        lease_ms = self._session.options.lease_ms
        call = calls.pause(self._session.keys, queue, for_ms=for_ms, lease_ms=lease_ms)
        if for_ms == END:
            return await self._session.executor.run(call)
        return await self._session.list_and_run(call, queue)  # `stats` then shows the pause of a new queue

    async def _control(self, what: Switch, for_ms: int, reason: str = "") -> Control:
        return await self._session.executor.run(calls.control(self._session.keys, what, for_ms=for_ms, reason=reason))


def _positive_ms(duration: Duration) -> int:
    return max(duration_ms(duration, field="duration"), 1)


def _by_name(holds: Holds) -> dict[str, int]:
    return {
        "scheduled": holds.scheduled,
        "ready_or_reserved": holds.in_stream,
        "failed": holds.failed,
        "completed": holds.completed,
        "other": holds.other,
        "outbox": holds.outbox,
    }


def _must_be_empty(queue: str, holds: Holds) -> None:
    found = [f"{count:,} {HOLDS_TEXT.get(name, name)}" for name, count in _by_name(holds).items() if count]
    if found:
        raise QueueInUse(
            f"The queue {queue!r} has jobs: {', '.join(found)}.",
            hint=f"`delayq clear --queue {queue}` deletes scheduled and ready jobs. "
            f"`delayq failed flush --queue {queue}` deletes failed jobs.",
        )
