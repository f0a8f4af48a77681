"""Every operation on jobs, once. AsyncDelayQ inherits them; DelayQ drives the same methods over a blocking leaf."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast, get_args

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.backoff import BackoffSpec
from delayq.core.display import shown
from delayq.core.errors import (
    Conflict,
    DelayqError,
    InvalidInput,
    JobFinished,
    JobHasFailed,
    JobNotFailed,
    JobNotFound,
    JobRunning,
    NotConfirmed,
    PayloadLost,
)
from delayq.core.job_spec import JobSpec, Limit, NewJob, check_whole_number, prepare, prepare_raw, when_of
from delayq.core.names import check_id, check_ids, new_id
from delayq.core.states import Answer, OnConflict
from delayq.core.times import Duration, Instant, duration_ms
from delayq.core.views import JobInfo, JobState, Page
from delayq.redis.commands import inspect
from delayq.redis.commands import jobs as calls
from delayq.redis.commands.call import Call
from delayq.redis.commands.jobs import MAX_BYTES, MAX_JOBS, Placed, RetryAnswer
from delayq.redis.queue_operations import QueueOperations
from delayq.redis.session import Session

RefT = TypeVar("RefT")

AT_ONCE_MS: Final = 15_000
"""A job due within this time may be over before its call is sent again, so that call needs a token."""

_ON_CONFLICT: Final = get_args(OnConflict)
RETRY_ROUNDS: Final = 10
SERVER_TIME_EVERY: Final = 60.0


class Operations(QueueOperations, Generic[RefT]):
    """What can be done with jobs. References to jobs are of the type RefT."""

    def __init__(self, session: Session, make_ref: Callable[..., RefT]) -> None:
        super().__init__(session)
        self._make_ref = make_ref
        self._server_ahead: tuple[float, float] | None = None

    async def schedule(
        self,
        name: str,
        data: Any = None,
        *,
        on_conflict: OnConflict = "keep",
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
        id: str | None = None,
        queue: str | None = None,
        tries: int | None = None,
        backoff: BackoffSpec | None = None,
        timeout: Duration | None = None,
        deadline: Limit | None = None,
        retry_until: Limit | None = None,
        max_exceptions: int | None = None,
        retention: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> RefT:
        """Schedule a job and return a reference to it.

        The job runs after `delay` ('15m', a timedelta), at `at` (RFC 3339 text with an offset, an aware datetime, or a
        local time with `tz`), or now. When a job with this `id` exists already, `on_conflict` decides: `keep` it,
        `replace` it, `postpone` it (new due time, old payload), or `error`. The outcome says what happened. The other
        options are those of JobSpec.

        Raises InvalidInput before anything is sent, Conflict, JobRunning (replace, postpone), BackendUnavailable,
        BackendFull, OutcomeUnknown, NotConfirmed.
        """
        spec = JobSpec(
            name=name,
            data=data,
            delay=delay,
            at=at,
            tz=tz,
            fold=fold,
            id=id,
            queue=queue,
            tries=tries,
            backoff=backoff,
            timeout=timeout,
            deadline=deadline,
            retry_until=retry_until,
            max_exceptions=max_exceptions,
            retention=retention,
            headers=headers,
            tags=tags,
        )
        job = prepare(spec, self._session.options, await self._now_ms(spec.needs_server_time))
        (ref,) = await self._place(job.queue, [job], on_conflict)
        return ref

    async def schedule_many(self, specs: Iterable[JobSpec], *, on_conflict: OnConflict = "keep") -> list[RefT]:
        """Schedule jobs, up to 250 in one trip, and return a reference to each in the order they were given.

        Raises as `schedule`. When a later trip fails, the jobs of earlier ones are stored.
        """
        given = list(specs)
        now_ms = await self._now_ms(bool([spec for spec in given if spec.needs_server_time]))
        jobs = [prepare(spec, self._session.options, now_ms) for spec in given]
        refs: dict[int, RefT] = {}
        for rows in _in_trips(jobs):
            queue = rows[0][1].queue
            placed = await self._place(queue, [job for _, job in rows], on_conflict)
            for (position, _), ref in zip(rows, placed, strict=True):
                refs[position] = ref
        return [refs[position] for position in range(len(jobs))]

    async def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Duration | None = None) -> RefT:
        """Schedule an envelope that is made already, under its own id. Raises UnreadableEnvelope, and as `schedule`."""
        job = prepare_raw(envelope, self._session.options, queue=queue, delay=delay)
        (ref,) = await self._place(job.queue, [job], "keep")
        return ref

    async def cancel(self, id: str, *, queue: str | None = None, running: bool = False) -> Answer:
        """Cancel a job, unless a worker has it.

        Returns `cancelled` (it will never run), `running`, `finished`, `failed` or `unknown`. With `running`, a running
        job is asked to stop. Raises FoundElsewhere when no queue was named and another queue has the job.
        """
        return await self._take_out(id, queue, running=running)

    async def archive(self, id: str, *, queue: str | None = None, reason: str = "") -> Answer:
        """Put a job that no worker has among the failed. Returns `archived`, or as `cancel`."""
        failure = failures.encode_open(failures.note("Archived", reason or "Archived by hand."))
        return await self._take_out(id, queue, failure=failure)

    async def reschedule(
        self,
        id: str,
        *,
        queue: str | None = None,
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
    ) -> RefT:
        """Give a waiting job a new due time.

        Raises JobNotFound, JobRunning, JobHasFailed, JobFinished, FoundElsewhere, InvalidInput.
        """
        name = self._queue(queue)
        when = when_of(delay, at, tz=tz, fold=fold, now_ms=await self._now_ms(False))
        moved = await self._session.write(calls.reschedule(self._session.keys, name, check_id(id), when), name)
        await self._must_be(moved.answer, ("rescheduled",), id, name, is_named=queue is not None)
        return self._make_ref(id, name, "scheduled", moved.due_ms, "rescheduled", "")

    async def run_now(self, id: str, *, queue: str | None = None) -> RefT:
        """End the wait of a job; on a paused queue it runs when that is resumed. Raises as `reschedule`.

        The call is not sent again when its answer is lost: OutcomeUnknown.
        """
        name = self._queue(queue)
        call = calls.run_now(self._session.keys, name, check_id(id), high_water=self._session.options.high_water)
        moved = await self._session.write(call, name)
        await self._must_be(moved.answer, ("ready", "scheduled"), id, name, is_named=queue is not None)
        return self._make_ref(id, name, moved.answer, moved.due_ms, moved.answer, "")

    async def retry(self, id: str, *, queue: str | None = None, data: Any = None) -> RefT:
        """Give a failed job all its tries again, now; `data` replaces its payload.

        Raises JobNotFound, JobNotFailed, PayloadLost, Conflict (another job owns its unique key), FoundElsewhere. The
        call is not sent again when its answer is lost: OutcomeUnknown.
        """
        name = self._queue(queue)
        payload = None if data is None else envelopes.encode_data(data, self._session.options.max_payload)
        for _ in range(RETRY_ROUNDS):
            info = await self.get(id, queue=queue)
            if info is None:
                raise JobNotFound(f"No job {id!r} is known in the queue {name!r}.", hint="Check the id and the queue.")
            if info.state != "failed":
                raise JobNotFailed(f"The job {id!r} is {info.state}; only a failed job can be retried.")
            call = self._retry_call(info, payload)
            answer = await self._session.write(call, name)
            if answer.answer == "scheduled":
                return self._make_ref(id, name, "scheduled", answer.due_ms, "scheduled", info.name)
            if answer.answer == "conflict":
                raise Conflict(
                    f"The job {answer.owner!r} owns the unique key of {id!r}.", hint="Wait until it has ended."
                )
        raise Conflict(f"The job {id!r} was changed by others {RETRY_ROUNDS} times.", hint="Try again later.")

    async def forget(self, ids: str | Iterable[str], *, queue: str | None = None) -> list[Answer]:
        """Drop failed or completed jobs for good: `forgotten`, `refused` (it waits or runs) or `unknown` for each.

        Raises FoundElsewhere when no queue was named, one id was given, and another queue has it.
        """
        name = self._queue(queue)
        job_ids = check_ids(ids)
        answers: list[Answer] = []
        for start in range(0, len(job_ids), MAX_JOBS):
            call = calls.forget(self._session.keys, name, job_ids[start : start + MAX_JOBS])
            answers += await self._session.write(call, name)
        if queue is None and answers == ["unknown"]:
            await self._session.must_be_unknown(job_ids[0])
        return answers

    async def get(self, id: str, *, queue: str | None = None) -> JobInfo | None:
        """Read everything that is known about a job; None when it is unknown. Raises FoundElsewhere."""
        info = await self._session.run(inspect.get(self._session.keys, self._queue(queue), check_id(id)))
        if info is None and queue is None:
            await self._session.must_be_unknown(id)
        return info

    async def wait(self, id: str, *, queue: str | None = None, timeout: Duration) -> JobInfo | None:
        """Wait until a job has ended: completed, failed, or gone (None). Looks every 20 ms, later once a second.

        Raises TimeoutError when it has not ended after `timeout`.
        """
        left = duration_ms(timeout, field="timeout") / 1000
        pause = 0.02
        while True:
            info = await self.get(id, queue=queue)
            if info is None or info.state in ("completed", "failed"):
                return info
            if left <= 0:
                raise TimeoutError(f"The job {id!r} is {info.state} after {timeout}.")
            await self._session.executor.sleep(min(pause, left))
            left -= pause
            pause = min(pause * 1.3, 1.0)

    async def list_jobs(self, state: JobState, *, queue: str | None = None, cursor: str = "", limit: int = 100) -> Page:
        """Read one page of the jobs in a state, in their order. A page with a cursor may be short, even empty."""
        _check_word("state", state, get_args(JobState))
        check_whole_number("limit", limit, least=1)
        return await self._session.run(
            inspect.list_jobs(self._session.keys, self._queue(queue), state, cursor=cursor, limit=limit)
        )

    async def iter_jobs(self, state: JobState, *, queue: str | None = None) -> AsyncIterator[JobInfo]:
        """Go through all jobs in a state, in their order, page by page."""
        cursor = ""
        while True:
            page = await self.list_jobs(state, queue=queue, cursor=cursor)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if not cursor:
                return

    async def _place(self, queue: str, jobs: list[NewJob], on_conflict: OnConflict) -> list[RefT]:
        """Store jobs of one queue, and return the references to them."""
        _check_word("on_conflict", on_conflict, _ON_CONFLICT)
        session = self._session
        if on_conflict in ("keep", "error"):
            call = calls.schedule(
                session.keys,
                queue,
                jobs,
                taken="kept" if on_conflict == "keep" else "conflict",
                high_water=session.options.high_water,
                lease_ms=session.options.lease_ms,
                token=new_id() if on_conflict == "error" or _may_be_over_soon(jobs) else "",
            )
        else:
            word: Any = "replaced" if on_conflict == "replace" else "postponed"
            call = calls.replace(
                session.keys, queue, jobs, word=word, lease_ms=session.options.lease_ms, token=new_id()
            )
        try:
            placed = await session.write_new(call, queue)
        except NotConfirmed as error:
            error.done = tuple(map(self._reference, jobs, cast(list[Placed], error.done[0])))
            raise
        return list(map(self._reference, jobs, placed))

    def _reference(self, job: NewJob, placed: Placed) -> RefT:
        """Return the reference for a stored job. A made id belongs to this call, so `kept` means a second sending."""
        outcome = placed.answer
        if outcome == "created":
            return self._make_ref(placed.id, job.queue, placed.state, placed.due_ms, outcome, job.name)
        if outcome == "kept" and not job.has_own_id and placed.id == job.id:
            outcome = "created"
        if outcome == "conflict":
            raise Conflict(
                f"The id {job.id!r} is taken by a job that is {placed.state}.",
                hint="Cancel that job, or use on_conflict='keep', 'replace' or 'postpone'.",
            )
        if outcome == "running":
            raise JobRunning(f"The job {job.id!r} is running, so it was left alone.", hint="Use another id.")
        return self._make_ref(placed.id, job.queue, placed.state, placed.due_ms, outcome, job.name)

    async def _take_out(self, job_id: str, queue: str | None, *, running: bool = False, failure: bytes = b"") -> Answer:
        name = self._queue(queue)
        call = calls.cancel(
            self._session.keys, name, check_id(job_id), running=running, failure=failure, token=new_id()
        )
        answer = await self._session.write(call, name)
        if answer == "unknown" and queue is None:
            await self._session.must_be_unknown(job_id)
        return answer

    def _retry_call(self, info: JobInfo, payload: msgspec.Raw | None) -> Call[RetryAnswer]:
        if info.envelope is None or info.is_lost:
            raise PayloadLost(
                f"The payload of the job {info.id!r} is lost, so there is nothing to retry.", hint="Forget it."
            )
        envelope = envelopes.refresh(info.raw, info.envelope, time.time_ns() // 1_000_000)
        if payload is not None:
            envelope = envelopes.rewrite(envelope, data=payload)
        fingerprint = envelopes.fingerprint(info.raw)
        return calls.retry(
            self._session.keys, info.queue, info.id, fingerprint=fingerprint, envelope=envelope, digest=""
        )

    async def _must_be(
        self, answer: Answer, good: tuple[Answer, ...], job_id: str, queue: str, *, is_named: bool
    ) -> None:
        """Raise the error that an answer stands for, unless it is a good one."""
        if answer in good:
            return
        if answer == "unknown":
            if not is_named:
                await self._session.must_be_unknown(job_id)
            raise JobNotFound(f"No job {job_id!r} is known in the queue {queue!r}.", hint="Check the id and the queue.")
        errors: dict[str, DelayqError] = {
            "running": JobRunning(f"The job {job_id!r} is running.", hint="`cancel --running` asks it to stop."),
            "failed": JobHasFailed(f"The job {job_id!r} has failed.", hint="`retry` runs it again."),
            "finished": JobFinished(f"The job {job_id!r} has finished."),
        }
        raise errors[answer]

    async def _now_ms(self, must_be_server_time: bool) -> int:
        """Return epoch ms: by the server's clock, asked for once a minute, or by this machine's."""
        local = time.time()
        if not must_be_server_time:
            return int(local * 1000)
        if self._server_ahead is None or time.monotonic() - self._server_ahead[0] > SERVER_TIME_EVERY:
            server = await self._session.run(inspect.server_time_ms()) / 1000
            self._server_ahead = (time.monotonic(), server - time.time())
        return int((local + self._server_ahead[1]) * 1000)


def _check_word(field: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidInput(
            f"{field} is {shown(value)}.", hint=f"Use {', '.join(words[:-1])} or {words[-1]}.", field=field
        )


def _may_be_over_soon(jobs: list[NewJob]) -> bool:
    """Whether a job may be over before its call is sent again. Jobs of one call often share their `when`."""
    return bool([when for when in {job.when for job in jobs} if when[0] != "+" or int(when) <= AT_ONCE_MS])


def _in_trips(jobs: list[NewJob]) -> Iterable[list[tuple[int, NewJob]]]:
    """Cut jobs, with their positions, into lists for one call each: one queue, not too many, not too large."""
    by_queue: dict[str, list[tuple[int, NewJob]]] = {}
    for position, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append((position, job))
    for rows in by_queue.values():
        trip: list[tuple[int, NewJob]] = []
        size = 0
        for row in rows:
            size += len(row[1].envelope)
            if trip and (len(trip) == MAX_JOBS or size > MAX_BYTES):
                yield trip
                trip, size = [], len(row[1].envelope)
            trip.append(row)
        yield trip
