"""Every operation of a client, once. This class is AsyncDelayQ; DelayQ drives the same methods over a blocking leaf."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

from delayq.core.errors import Conflict
from delayq.core.job_spec import JobSpec, NewJob, prepare
from delayq.core.names import check_id, check_queue, new_id
from delayq.core.times import Duration
from delayq.core.views import CancelAnswer, JobRef, OnConflict, QueueStats, ScheduleOutcome
from delayq.redis.commands import schedule as calls
from delayq.redis.commands.call import Call, value_of
from delayq.redis.commands.schedule import Placed
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys


class Operations:
    """What can be done with jobs and queues."""

    def __init__(self, executor: Executor, keys: Keys) -> None:
        self._executor = executor
        self._keys = keys
        self._listed: set[str] = set()

    async def schedule(
        self,
        name: str,
        data: dict[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        id: str | None = None,
        queue: str = "default",
        on_conflict: OnConflict = "keep",
        tries: int | None = None,
        retention: Duration | None = None,
    ) -> JobRef:
        """Schedule a job and say where it is.

        The job runs after `delay`, or at the aware datetime `at`, or now. With an `id` that a job has already,
        `on_conflict` says whether that job is kept or Conflict is raised.
        """
        spec = JobSpec(name=name, data=data, delay=delay, at=at, id=id, queue=queue, tries=tries, retention=retention)
        job = prepare(spec)
        (place,) = await self._place(job.queue, [job], on_conflict)
        return _reference(job, place)

    async def schedule_many(self, specs: Iterable[JobSpec], *, on_conflict: OnConflict = "keep") -> list[JobRef]:
        """Schedule jobs, up to 250 in one trip, and return a reference to each in the order they were given."""
        jobs = [prepare(spec) for spec in specs]
        refs: dict[int, JobRef] = {}
        for batch in _batches(jobs):
            queue = batch[0][1].queue
            placed = await self._place(queue, [job for _, job in batch], on_conflict)
            for (position, job), place in zip(batch, placed, strict=True):
                refs[position] = _reference(job, place)
        return [refs[position] for position in range(len(jobs))]

    async def cancel(self, id: str, *, queue: str = "default", running: bool = False) -> CancelAnswer:
        """Cancel a job. `cancelled` means that it will never run; with `running`, a running job is asked to stop."""
        return await self._executor.run(calls.cancel(self._keys, check_queue(queue), check_id(id), running=running))

    async def stats(self, queue: str = "default") -> QueueStats:
        """Count the jobs of a queue in each state."""
        counts = await self._executor.run_all(calls.stats(self._keys, check_queue(queue)))
        return calls.read_stats(queue, [value_of(count) for count in counts])

    async def queues(self) -> list[str]:
        """List the names of all queues."""
        return await self._executor.run(calls.list_queues(self._keys))

    async def close(self) -> None:
        """Close the connections."""
        await self._executor.close()

    async def _place(self, queue: str, jobs: list[NewJob], on_conflict: OnConflict) -> list[Placed]:
        """Store the jobs of one queue. The first time, the queue is listed in front of them, in the same trip."""
        token = new_id() if on_conflict == "error" or any(job.when == "+0" for job in jobs) else ""
        call = calls.schedule(self._keys, queue, jobs, on_conflict=on_conflict, token=token)
        if queue in self._listed:
            return await self._executor.run(call)
        trip: list[Call[Any]] = [calls.list_queue(self._keys, queue), call]
        _, placed = [value_of(outcome) for outcome in await self._executor.run_all(trip)]
        self._listed.add(queue)
        return cast(list[Placed], placed)


def _batches(jobs: list[NewJob]) -> Iterable[list[tuple[int, NewJob]]]:
    """Cut jobs, with their positions, into lists for one call each: one queue, and not too many."""
    by_queue: dict[str, list[tuple[int, NewJob]]] = {}
    for position, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append((position, job))
    for rows in by_queue.values():
        for start in range(0, len(rows), calls.MAX_JOBS):
            yield rows[start : start + calls.MAX_JOBS]


def _reference(job: NewJob, place: Placed) -> JobRef:
    """Return the reference for a stored job. A made id belongs to this call, so `kept` means a resend."""
    if place.answer == "conflict" and job.has_own_id:
        raise Conflict(f"id {job.id!r} is taken by a job that is {place.state}; cancel it, or use on_conflict='keep'")
    outcome: ScheduleOutcome = "kept" if place.answer == "kept" and job.has_own_id else "created"
    return JobRef(job.id, job.name, job.queue, place.state, outcome, place.due_ms)
