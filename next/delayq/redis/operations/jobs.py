"""Operations on existing jobs: read, wait, list, reschedule, cancel, retry, forget.

An id is unique only within its queue. A call that names no queue uses the default queue. If the default queue does not
have the job but another queue has it, the call changes nothing and raises FoundElsewhere.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, get_args

import msgspec

from delayq.core import clock
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.display import shown
from delayq.core.encryption import seal
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
)
from delayq.core.events import JobRetryRequested
from delayq.core.failed import no_payload
from delayq.core.ids import new_id
from delayq.core.job_search import JobSearch
from delayq.core.job_spec import check_whole_number, when_of
from delayq.core.listeners import emit, listeners
from delayq.core.names import check_id, check_ids
from delayq.core.states import Answer
from delayq.core.times import Duration, Instant, duration_ms
from delayq.core.unique import to_take_again
from delayq.core.views import JobInfo, JobState, Page
from delayq.redis.calls import inspect
from delayq.redis.calls import jobs as calls
from delayq.redis.calls.call import Call
from delayq.redis.calls.jobs import Rescheduled, RetryAnswer
from delayq.redis.operations.base import OperationsBase, RefT, check_word
from delayq.redis.search import open_search
from delayq.redis.worker.grouping import cut

RETRY_ROUNDS: Final = 10
"""Maximum number of times that `retry` reads a job while other programs keep changing it."""

FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0
PAUSE_FACTOR: Final = 1.3
"""The first and the longest pause between two reads of `wait`, in seconds. Each pause is PAUSE_FACTOR times the pause
before it.
"""

_CURSOR_OF_SET: Final = re.compile(r"[-+]?([0-9.]+(e[-+]?[0-9]+)?|inf) .+", re.DOTALL)
_CURSOR_OF_STREAM: Final = re.compile(r"[0-9]+-[0-9]+")
"""A cursor is a score with a job id, or the id of a stream entry; see list.lua."""


class _Changed(Exception):
    """Another program changed the job after it was read."""


class JobOperations(OperationsBase[RefT]):
    """Operations on existing jobs."""

    async def cancel(self, id: str, *, queue: str | None = None, running: bool = False) -> Answer:
        """Cancel a job, unless a worker has already received it. The decision is atomic.

        `queue`: None = the default queue. `running`: if a worker has the job, ask the job to stop. Returns one of

            cancelled    the job will not run, or not run again
            running      a worker has the job, so the job is not cancelled; with `running`, the job was asked to stop
            finished     the job is completed and kept
            failed       the job has failed for good and is kept
            unknown      the queue does not have the job: it was completed, cancelled or deleted, it is in another
                         queue, or it never existed

        Raises FoundElsewhere if no queue was named and another queue has the job. Raises InvalidInput.
        """
        return await self._take_out(id, queue, running=running)

    async def archive(self, id: str, *, queue: str | None = None, reason: str = "") -> Answer:
        """Move a job to the failed jobs, unless a worker has already received it.

        `retry` can start the job again later. `queue`: None = the default queue. `reason`: the message of the failure
        that is stored for the job. Returns `archived`, or one of the other answers of `cancel` (`running`, `finished`,
        `failed`, `unknown`). Raises the errors of `cancel`.
        """
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
        """Change the due time of a job, unless a worker has already received the job. Return a reference to the job.

        Give either `delay` or `at`. `delay`: time from now ('15m', a timedelta). `at`: point in time (RFC 3339 text, or
        a datetime); `tz` and `fold` belong to a local time, as in `schedule`. `queue`: None = the default queue. The
        outcome of the reference is `rescheduled`.

        Raises JobNotFound, JobRunning, JobHasFailed, JobFinished, FoundElsewhere and InvalidInput.
        """
        if delay is None and at is None:
            raise InvalidInput(
                "The new due time is missing.",
                hint="Give delay= or at=. To let the job run now, use run_now.",
                field="delay",
            )
        when = when_of(delay, at, tz=tz, fold=fold, now_ms=int(clock.time() * 1000))
        job_id = check_id(id)
        return await self._move(lambda shard: calls.reschedule(self._session.keys, shard, job_id, when), id, queue)

    async def run_now(self, id: str, *, queue: str | None = None) -> RefT:
        """Make a scheduled job ready before its due time, so that the job runs as soon as a worker is free.

        `queue`: None = the default queue. The outcome of the returned reference is `ready`, also if the job was ready
        before. If the queue is paused, has reached its limit of ready and reserved jobs, or has no stream yet, the
        outcome is `scheduled`: the job is due now, and becomes ready later.

        Raises the errors of `reschedule`. If the reply is lost, the call is not repeated, and OutcomeUnknown is raised.
        """
        job_id, high_water = check_id(id), self._session.options.high_water
        return await self._move(
            lambda shard: calls.run_now(self._session.keys, shard, job_id, high_water=high_water), id, queue
        )

    async def retry(self, id: str, *, queue: str | None = None, data: Any = None) -> RefT:
        """Retry a failed job now. Its attempts are counted from 0 again. Return a reference to the job.

        `queue`: None = the default queue. `data`: a new payload, which is encrypted if the job is; None = keep the
        payload. The outcome of the reference is `scheduled`.

        Raises JobNotFound, JobNotFailed, PayloadLost, FoundElsewhere and InvalidInput. Raises ConfigError if `data`
        must be encrypted and no keys are set. Raises Conflict if another job owns the unique key of this job, or if
        other programs change this job again and again. If the reply is lost, the call is not repeated, and
        OutcomeUnknown is raised.
        """
        name = self._queue(queue)
        payload = None if data is None else envelopes.encode_data(data, self._session.options.max_payload)
        for _ in range(RETRY_ROUNDS):
            info = await self.get(id, queue=queue)
            if info is None:
                raise JobNotFound(f"No job {id!r} is known in the queue {name!r}.", hint="Check the id and the queue.")
            if info.state != "failed":
                error = JobNotFailed(
                    f"The job {id!r} is {info.state}; only a failed job can be retried.",
                    hint="To run a scheduled job at once, use `run_now`. "
                    "To run a completed job again, schedule it with a new id.",
                )
                error.queue = info.queue
                raise error
            with suppress(_Changed):
                return await self._change(
                    name,
                    info.id,
                    self._retry_call(info, payload),
                    partial(self._retried, info),
                    is_unknown=lambda answer: answer.answer == "unknown",
                )
        raise Conflict(f"Other programs changed the job {id!r} {RETRY_ROUNDS} times.", hint="Try again later.")

    async def forget(self, ids: str | Iterable[str], *, queue: str | None = None) -> list[Answer]:
        """Delete failed or completed jobs. `ids` is one id or several; `queue` None = the default queue.

        Returns a list with one answer for each id, in the same order:

            forgotten    the job was deleted
            refused      nothing changed, because the job is scheduled, ready or reserved
            unknown      the queue does not have the job

        Raises FoundElsewhere if no queue was named, one id was given, and another queue has a job with this id. Raises
        InvalidInput. If the reply is lost, the call is not repeated, and OutcomeUnknown is raised.
        """
        name = self._queue(queue)
        job_ids = check_ids(ids)
        answers = await self._forget(name, job_ids)
        if "unknown" in answers and await self._session.shards.have_changed(name):
            unknown = [job_id for job_id, answer in zip(job_ids, answers, strict=True) if answer == "unknown"]
            found = iter(await self._forget(name, unknown))
            answers = [next(found) if answer == "unknown" else answer for answer in answers]
        if queue is None and answers == ["unknown"]:
            await self._session.raise_if_elsewhere(job_ids[0])
        return answers

    async def _forget(self, queue: str, job_ids: list[str]) -> list[Answer]:
        """Delete failed or completed jobs, in calls for one shard each. Return an answer for each id."""
        positions: dict[str, list[int]] = {}
        for position, job_id in enumerate(job_ids):
            positions.setdefault(self._session.shards.of_job(queue, job_id), []).append(position)
        answers: dict[int, Answer] = {}
        for shard, of_shard in positions.items():
            for page in cut(of_shard):
                call = calls.forget(self._session.keys, shard, [job_ids[position] for position in page])
                try:
                    answered = await self._session.write(call, shard)
                except NotConfirmed as error:
                    answers.update(zip(page, error.done[0], strict=True))
                    error.done = ([answers[position] for position in sorted(answers)],)
                    raise
                answers.update(zip(page, answered, strict=True))
        return [answers[position] for position in range(len(job_ids))]

    async def get(self, id: str, *, queue: str | None = None) -> JobInfo | None:
        """Read everything that is known about a job. Return None if the queue does not have the job.

        `queue`: None = the default queue. Raises FoundElsewhere if no queue was named and another queue has the job.
        Raises InvalidInput.
        """
        session, name, job_id = self._session, self._queue(queue), check_id(id)
        while True:
            call = inspect.get(session.keys, session.shards.of_job(name, job_id), job_id)
            info = await session.executor.run(call)
            if info is not None or not await session.shards.have_changed(name):
                break
        if info is None and queue is None:
            await session.raise_if_elsewhere(id)
        if info is not None and session.shards.known(name) > 1:
            info = msgspec.structs.replace(info, shard=session.shards.number_of_job(name, job_id))
        return None if info is None else session.with_keys(info)

    async def look_elsewhere(self, id: str, *, queue: str) -> None:
        """Raise FoundElsewhere if another queue has the job. `queue`: the queue that does not have the job."""
        await self._session.raise_if_elsewhere(check_id(id), queue=queue)

    async def wait(self, id: str, *, queue: str | None = None, timeout: Duration) -> JobInfo | None:
        """Wait until a job has ended.

        Return the job, whose state is then completed or failed. Return None if the queue does not have the job: it was
        completed and not kept, was cancelled or deleted, or never existed.

        `queue`: None = the default queue. `timeout`: longest wait ('30s', a timedelta). The job is read every 20 ms at
        first, and then less often, down to once a second. Raises TimeoutError if the job has not ended after `timeout`.
        Raises the errors of `get`.
        """
        left = duration_ms(timeout, field="timeout") / 1000
        pause = FIRST_PAUSE
        while True:
            info = await self.get(id, queue=queue)
            if info is None or info.state in ("completed", "failed"):
                return info
            if left <= 0:
                raise TimeoutError(f"The job {id!r} has not ended after {timeout}; it is {info.state}.")
            await self._session.executor.sleep(min(pause, left))
            left -= pause
            pause = min(pause * PAUSE_FACTOR, LONGEST_PAUSE)

    async def list_jobs(self, state: JobState, *, queue: str | None = None, cursor: str = "", limit: int = 100) -> Page:
        """Read one page of the jobs in a state.

        The order is: scheduled jobs by due time, failed jobs by time of failure, completed jobs by the time at which
        they are deleted, ready and reserved jobs by stream entry.

        `state`: 'scheduled', 'ready', 'reserved', 'failed' or 'completed'. `queue`: None = the default queue. `cursor`:
        the cursor of the previous page; '' = the first page. `limit`: maximum number of jobs, 1 to 500. A page also
        ends when it has 1 MB of envelopes.

        The cursor of the last page is ''. A page that is not the last one may have fewer than `limit` jobs, or none.
        Raises InvalidInput.
        """
        check_word("state", state, get_args(JobState))
        check_whole_number("limit", limit, least=1, most=inspect.MAX_PAGE)
        name, session = self._queue(queue), self._session
        if len(await session.shards.read(name)) > 1:
            search = JobSearch(state=state, queues=[name], newest_first=False)
            found = await (await open_search(session, search, cursor=cursor)).page(limit)
            for error in found.errors.values():
                raise error
            return Page(found.jobs, found.cursor)
        _check_cursor(state, cursor)
        call = inspect.list_jobs(session.keys, name, state, cursor=cursor, limit=limit)
        page = await session.executor.run(call)
        return Page([session.with_keys(job) for job in page.jobs], page.cursor)

    async def iter_jobs(self, state: JobState, *, queue: str | None = None) -> AsyncIterator[JobInfo]:
        """Iterate over all jobs in a state. `state`, `queue`, the order and the errors are as in `list_jobs`."""
        cursor = ""
        while True:
            page = await self.list_jobs(state, queue=queue, cursor=cursor)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if not cursor:
                return

    async def _take_out(self, job_id: str, queue: str | None, *, running: bool = False, failure: bytes = b"") -> Answer:
        keys, checked_id = self._session.keys, check_id(job_id)

        def cancel(shard: str) -> Call[Answer]:
            return calls.cancel(keys, shard, checked_id, running=running, failure=failure, token=new_id())

        async def checked(answer: Answer) -> Answer:
            if answer == "unknown" and queue is None:
                await self._session.raise_if_elsewhere(job_id)
            return answer

        return await self._change(
            self._queue(queue), checked_id, cancel, checked, is_unknown=lambda answer: answer == "unknown"
        )

    async def _move(self, make: Callable[[str], Call[Rescheduled]], job_id: str, queue: str | None) -> RefT:
        """Send a call that changes the due time of a job, and return a reference to the job."""
        name = self._queue(queue)

        async def reference(moved: Rescheduled) -> RefT:
            await self._check_moved(moved.answer, job_id, name, is_named=queue is not None)
            state = "ready" if moved.answer == "ready" else "scheduled"
            return self._make_ref(job_id, name, state, moved.due_ms, moved.answer, "")

        return await self._change(name, job_id, make, reference, is_unknown=lambda moved: moved.answer == "unknown")

    def _retry_call(self, info: JobInfo, payload: msgspec.Raw | None) -> Callable[[str], Call[RetryAnswer]]:
        if info.envelope is None or info.is_lost:
            raise no_payload(info, "be retried")
        envelope = envelopes.refresh(info.raw, info.envelope, int(clock.time() * 1000))
        if payload is not None:
            if info.is_encrypted:
                ring, job = self._session.options.key_ring, info.envelope
                payload = seal(ring, "data", payload, job_id=job.id, name=job.name)
            envelope = envelopes.rewrite(envelope, data=payload)
        fingerprint, digest = envelopes.fingerprint(info.raw), to_take_again(info.envelope.unique)
        return lambda shard: calls.retry(
            self._session.keys, shard, info.id, fingerprint=fingerprint, envelope=envelope, digest=digest
        )

    async def _retried(self, info: JobInfo, answer: RetryAnswer) -> RefT:
        if answer.answer == "scheduled":
            if JobRetryRequested in listeners:
                emit(JobRetryRequested(info.id, info.name, info.queue))
            return self._make_ref(info.id, info.queue, "scheduled", answer.due_ms, "scheduled", info.name)
        if answer.answer == "conflict":
            raise key_is_taken(answer.owner, info.id)
        raise _Changed

    async def _check_moved(self, answer: Answer, job_id: str, queue: str, *, is_named: bool) -> None:
        """Raise the error that corresponds to an answer, unless the answer means that the job was moved."""
        if answer in ("rescheduled", "ready", "scheduled"):
            return
        if answer == "unknown":
            if not is_named:
                await self._session.raise_if_elsewhere(job_id)
            raise JobNotFound(f"No job {job_id!r} is known in the queue {queue!r}.", hint="Check the id and the queue.")
        errors: dict[str, DelayqError] = {
            "running": JobRunning(
                f"A worker has already received the job {job_id!r}.",
                hint="`delayq cancel --running` asks the job to stop.",
            ),
            "failed": JobHasFailed(f"The job {job_id!r} has failed.", hint="`delayq failed retry` runs it again."),
            "finished": JobFinished(
                f"The job {job_id!r} is completed.", hint="To run it again, schedule it with a new id."
            ),
        }
        raise errors[answer]


def _check_cursor(state: JobState, cursor: object) -> None:
    """Raise InvalidInput for a cursor that no page can have.

    Without this check, such a cursor could silently return the first page again.
    """
    grammar = _CURSOR_OF_STREAM if state in ("ready", "reserved") else _CURSOR_OF_SET
    if cursor != "" and not (isinstance(cursor, str) and grammar.fullmatch(cursor)):
        raise InvalidInput(
            f"cursor is {shown(cursor)}.",
            hint="Use the cursor of the previous page, or '' for the first page.",
            field="cursor",
        )


def key_is_taken(owner: str, job_id: str) -> Conflict:
    """Return the error for a failed job that cannot be retried, because another job owns its unique key."""
    return Conflict(
        f"The job {owner!r} owns the unique key of {job_id!r}.", hint=f"Wait until the job {owner!r} has ended."
    )
