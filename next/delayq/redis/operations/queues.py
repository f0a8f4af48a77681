"""Operations on queues, and on all workers."""

from typing import Final

from delayq.core.display import shown
from delayq.core.errors import CallRefused, InvalidInput, NotConfirmed, QueueInUse, QueueNotFound
from delayq.core.job_spec import check_whole_number
from delayq.core.names import check_queue
from delayq.core.times import Duration, duration_ms
from delayq.core.views import Control, DayCounts, QueueStats, QueueView, Upcoming, WorkerInfo
from delayq.redis.calls import inspect
from delayq.redis.calls import queues as calls
from delayq.redis.calls.call import value_of
from delayq.redis.calls.queues import END, UNTIL_ENDED, Holds, Switch
from delayq.redis.operations.base import OperationsBase, RefT, Told
from delayq.redis.worker import worker_registry

MAX_SPANS: Final = 10_000
SHORTEST_LEASE_MS: Final = 100


class QueueOperations(OperationsBase[RefT]):
    """Operations on queues, and on all workers."""

    async def queues(self) -> list[str]:
        """List the names of all queues, sorted."""
        return await self._session.executor.run(inspect.list_queues(self._session.keys))

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """Count the jobs of one queue, or of all, in each state.

        Among all, a queue that is damaged keeps nothing back: its `error` says why it could not be read.
        """
        if queue is not None:
            return [await self._session.executor.run(inspect.stats(self._session.keys, check_queue(queue)))]
        names = await self.queues()
        outcomes = await self._session.executor.run_all([inspect.stats(self._session.keys, name) for name in names])
        return [
            QueueStats(queue=name, error=outcome.message) if isinstance(outcome, CallRefused) else value_of(outcome)
            for name, outcome in zip(names, outcomes, strict=True)
        ]

    async def upcoming(self, queue: str | None = None, *, span: Duration = "1m", spans: int = 60) -> Upcoming:
        """Count the jobs that fall due in each of the next `spans` spans of time."""
        name = self._queue(queue)
        span_ms = duration_ms(span, field="span")
        if span_ms < 1:
            raise InvalidInput(f"span {shown(span)} is no length.", hint="Use one such as 1m.", field="span")
        check_whole_number("spans", spans, least=1, most=MAX_SPANS)
        now_ms = await self._session.executor.run(inspect.server_time_ms())
        bounds = [now_ms + n * span_ms for n in range(spans + 1)]
        outcomes = await self._session.executor.run_all(inspect.count_due(self._session.keys, name, bounds))
        overdue, *counts, later = [value_of(outcome) for outcome in outcomes]
        return Upcoming(name, now_ms, span_ms, overdue, counts, later)

    async def pause(self, queue: str | None = None, *, duration: Duration | None = None) -> int:
        """Pause a queue for a time, or until it is resumed. Returns until when, in epoch ms; 0 = until resumed."""
        return await self._pause(self._queue(queue), UNTIL_ENDED if duration is None else _positive_ms(duration))

    async def resume(self, queue: str | None = None) -> None:
        """End the pause of a queue."""
        await self._pause(self._queue(queue), END)

    async def pause_all(self, *, duration: Duration | None = None, reason: str = "") -> Control:
        """Stop all workers from starting jobs, for a time or until `resume_all`."""
        return await self._control("pause", UNTIL_ENDED if duration is None else _positive_ms(duration), reason)

    async def resume_all(self) -> Control:
        """End the pause of all workers."""
        return await self._control("pause", END)

    async def start_maintenance(self, *, duration: Duration | None = None, reason: str = "") -> Control:
        """Stop all workers from starting jobs; a worker with --force goes on."""
        return await self._control("maintenance", UNTIL_ENDED if duration is None else _positive_ms(duration), reason)

    async def end_maintenance(self) -> Control:
        """End the maintenance."""
        return await self._control("maintenance", END)

    async def restart_workers(self) -> Control:
        """Ask all workers to finish what they run and to end, so that their process manager starts them anew."""
        return await self._control("restart", UNTIL_ENDED)

    async def control(self) -> Control:
        """Read what holds for all workers."""
        return await self._control("", UNTIL_ENDED)

    async def workers(self) -> list[WorkerInfo]:
        """List the child processes of all workers that gave a sign of life lately."""
        names = await self._session.executor.run(worker_registry.list_names(self._session.keys))
        calls = [worker_registry.read_worker(self._session.keys, name) for name in names]
        found = [value_of(outcome) for outcome in await self._session.executor.run_all(calls)]
        return [worker for worker in found if worker is not None]

    async def history(self, queue: str | None = None, *, days: int = 30) -> list[DayCounts]:
        """Return what happened in a queue on each of the last `days` days, 1 to 90, the oldest first.

        Days are those of UTC, and days without any event are left out. A janitor writes them every few seconds.
        """
        name = self._queue(queue)
        check_whole_number("days", days, least=1, most=inspect.DAYS_KEPT)
        now_ms = await self._session.executor.run(inspect.server_time_ms())
        return await self._session.executor.run(inspect.history(self._session.keys, name, days=days, now_ms=now_ms))

    async def clear(self, queue: str | None = None, *, progress: Told | None = None) -> int:
        """Drop all jobs of a queue that wait. What runs is left alone. Returns how many were dropped.

        `progress` is called now and then with the number so far.
        """
        name = self._queue(queue)
        dropped = 0
        while count := await self._session.executor.run(calls.clear(self._session.keys, name)):
            dropped += count
            if progress is not None:
                progress(dropped)
        return dropped

    async def queue_set(self, queue: str, *, lease: Duration) -> QueueView:
        """Set the lease of a queue, at least 100 ms: how long a job stays with a worker that gives no sign of life.

        Workers follow within a third of the old lease. A shorter lease may let a job run twice until then.
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
        """Read what a queue keeps for itself, and what it holds. Raises QueueNotFound."""
        name = check_queue(queue)
        (stats,) = await self.stats(name)
        if not stats.lease_ms:
            raise QueueNotFound(f"No queue {name!r} is known.", hint="`delayq stats` lists the queues.")
        holds = await self._session.executor.run(calls.remove(self._session.keys, name, look=True))
        return QueueView(name, stats.lease_ms, 1, stats.paused_until_ms, _by_name(holds))

    async def queue_remove(self, queue: str) -> None:
        """Forget a queue that holds nothing. Raises QueueInUse, which says what it holds."""
        name = check_queue(queue)
        keys = self._session.keys
        _must_be_empty(name, await self._session.executor.run(calls.remove(keys, name, look=True)))
        # The name goes off the list first: a producer that comes in between puts it there again.
        await self._session.executor.run(calls.unlist_queue(keys, name))
        self._session.list_again(name)
        holds = await self._session.executor.run(calls.remove(keys, name, look=False))
        if any(_by_name(holds).values()):
            await self._session.executor.run(calls.list_queue(keys, name))
            _must_be_empty(name, holds)

    async def _pause(self, queue: str, for_ms: int) -> int:
        lease_ms = self._session.options.lease_ms
        return await self._session.executor.run(
            calls.pause(self._session.keys, queue, for_ms=for_ms, lease_ms=lease_ms)
        )

    async def _control(self, what: Switch, for_ms: int, reason: str = "") -> Control:
        return await self._session.executor.run(calls.control(self._session.keys, what, for_ms=for_ms, reason=reason))


def _positive_ms(duration: Duration) -> int:
    return max(duration_ms(duration, field="duration"), 1)


def _by_name(holds: Holds) -> dict[str, int]:
    return {
        "scheduled": holds.scheduled,
        "ready or running": holds.in_stream,
        "failed": holds.failed,
        "completed": holds.completed,
        "other": holds.other,
        "in outbox": holds.outbox,
    }


def _must_be_empty(queue: str, holds: Holds) -> None:
    held = [f"{count:,} {place}" for place, count in _by_name(holds).items() if count]
    if held:
        raise QueueInUse(
            f"The queue {queue!r} holds jobs: {', '.join(held)}.",
            hint=f"`delayq clear --queue {queue}` drops what waits, `delayq failed flush --queue {queue}` the failed.",
        )
