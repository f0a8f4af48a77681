"""Operations that store new jobs."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, get_args

from delayq.core.backoff import BackoffSpec
from delayq.core.declared import with_declared
from delayq.core.display import shown
from delayq.core.errors import Conflict, InvalidInput, JobRunning, NotConfirmed, OutcomeUnknown
from delayq.core.ids import new_id
from delayq.core.job_spec import JobSpec, Limit, NewJob, prepare, prepare_raw, spread_out
from delayq.core.options import Options
from delayq.core.states import OnConflict
from delayq.core.times import Duration, Instant, duration_ms
from delayq.redis.calls import inspect
from delayq.redis.calls import jobs as calls
from delayq.redis.calls.call import MAX_BYTES, MAX_ROWS
from delayq.redis.calls.jobs import Placed
from delayq.redis.operations.base import OperationsBase, RefT, check_word
from delayq.redis.server_clock import ServerClock
from delayq.redis.session import Session

AT_ONCE_MS: Final = 15_000
"""A job due within this time may be over before its call is sent again, so that call needs a token."""

_ON_CONFLICT: Final = get_args(OnConflict)
REFUSED: Final = ("conflict", "running")
"""Answers for a job that was not stored."""


class SchedulingOperations(OperationsBase[RefT]):
    """Operations that store new jobs."""

    def __init__(self, session: Session, make_ref: Callable[..., RefT]) -> None:
        super().__init__(session, make_ref)
        self._clock = ServerClock()

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
        options are those of JobSpec. A job of this name that this program declares lends its queue, delay, deadline,
        retry_until and tags.

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
        spec = self._session.routed(with_declared(spec))
        job = prepare(spec, self._session.options, await self._now_ms(spec.needs_server_time))
        (ref,) = await self._place(job.queue, [job], on_conflict)
        return ref

    async def schedule_many(
        self, specs: Iterable[JobSpec], *, on_conflict: OnConflict = "keep", spread: Duration | None = None
    ) -> list[RefT]:
        """Schedule jobs, up to 250 in one trip, and return a reference to each in the order they were given.

        `spread` ('1h') scatters the due times over this long, each by the id of its job.
        Raises as `schedule`. When a later trip fails, the jobs of earlier ones are stored; `stored` of a Conflict holds
        their references. NotConfirmed is raised after all trips: all jobs are stored, `done` has their references.
        """
        given = self._session.all_routed([with_declared(spec) for spec in _checked_specs(specs)])
        now_ms = await self._now_ms(bool([spec for spec in given if spec.needs_server_time]))
        jobs = _prepare_all(given, self._session.options, now_ms)
        if spread is not None:
            jobs = spread_out(jobs, duration_ms(spread, field="spread"))
        refs: dict[int, RefT] = {}
        unconfirmed = None
        for rows in _in_trips(jobs):
            queue = rows[0][1].queue
            try:
                placed = await self._place(queue, [job for _, job in rows], on_conflict)
            except Conflict as error:
                error.stored = [*refs.values(), *error.stored]
                raise
            except NotConfirmed as error:
                unconfirmed, placed = error, list(error.done)
            for (position, _), ref in zip(rows, placed, strict=True):
                refs[position] = ref
        in_order = [refs[position] for position in range(len(jobs))]
        if unconfirmed is not None:
            unconfirmed.done = tuple(in_order)
            raise unconfirmed
        return in_order

    async def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Duration | None = None) -> RefT:
        """Schedule an envelope that is made already, under its own id. Raises as `schedule`."""
        job = prepare_raw(envelope, self._session.options, queue=queue, delay=delay)
        (ref,) = await self._place(job.queue, [job], "keep")
        return ref

    async def _place(self, queue: str, jobs: list[NewJob], on_conflict: OnConflict) -> list[RefT]:
        """Store jobs of one queue, and return the references to them."""
        check_word("on_conflict", on_conflict, _ON_CONFLICT)
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
        unconfirmed = None
        try:
            placed = await session.write(call, queue, may_create=True)
        except NotConfirmed as error:
            unconfirmed, placed = error, cast(list[Placed], error.done[0])
        except OutcomeUnknown as error:
            error.ids = [job.id for job in jobs]
            raise
        try:
            refs = list(map(self._reference, jobs, placed))
        except Conflict as error:
            stored = [(job, one) for job, one in zip(jobs, placed, strict=True) if one.answer not in REFUSED]
            error.stored = [self._reference(job, one) for job, one in stored]
            raise
        if unconfirmed is not None:
            unconfirmed.done = tuple(refs)
            raise unconfirmed
        return refs

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
                field="on_conflict",
            )
        if outcome == "running":
            raise JobRunning(f"The job {job.id!r} is running, so it was left alone.", hint="Use another id.")
        return self._make_ref(placed.id, job.queue, placed.state, placed.due_ms, outcome, job.name)

    async def _now_ms(self, must_be_server_time: bool) -> int:
        """Return epoch ms: the time of the server, read at least once a minute, or that of this machine."""
        if not must_be_server_time:
            return int(time.time() * 1000)
        if self._clock.is_due():
            self._clock.set(await self._session.executor.run(inspect.server_time_ms()))
        return self._clock.now_ms()


def _checked_specs(specs: Iterable[JobSpec]) -> list[JobSpec]:
    given = list(specs)
    for position, spec in enumerate(given):
        if spec.__class__ is not JobSpec and not isinstance(spec, JobSpec):
            raise InvalidInput(
                f"specs[{position}] is {shown(spec)}.", hint="Use JobSpec(name='order.close', …).", field="specs"
            )
    return given


def _prepare_all(specs: list[JobSpec], options: Options, now_ms: int) -> list[NewJob]:
    jobs = []
    for position, spec in enumerate(specs):
        try:
            jobs.append(prepare(spec, options, now_ms))
        except InvalidInput as error:
            raise InvalidInput(f"specs[{position}]: {error.message}", hint=error.hint, field=error.field) from None
    return jobs


def _may_be_over_soon(jobs: list[NewJob]) -> bool:
    """Whether a job may be over before its call is sent again. Jobs of one call often share their `when`."""
    return bool([when for when in {job.when for job in jobs} if when[0] != "+" or int(when) <= AT_ONCE_MS])


def _in_trips(jobs: list[NewJob]) -> Iterable[list[tuple[int, NewJob]]]:
    """Cut jobs, with their positions, into lists for one call each: one queue, not too many, not too large."""
    by_queue: defaultdict[str, list[tuple[int, NewJob]]] = defaultdict(list)
    for row in enumerate(jobs):
        by_queue[row[1].queue].append(row)
    for rows in by_queue.values():
        for start in range(0, len(rows), MAX_ROWS):
            yield from _not_too_large(rows[start : start + MAX_ROWS])


def _not_too_large(rows: list[tuple[int, NewJob]]) -> Iterable[list[tuple[int, NewJob]]]:
    sizes = [len(job.envelope) for _, job in rows]
    first = size = 0
    for position, more in enumerate(sizes if sum(sizes) > MAX_BYTES else ()):
        size += more
        if size > MAX_BYTES and position > first:
            yield rows[first:position]
            first, size = position, more
    yield rows[first:]
