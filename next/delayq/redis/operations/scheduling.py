"""Operations that schedule new jobs."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, get_args

from delayq.core import clock
from delayq.core.backoff import BackoffSpec
from delayq.core.display import shown
from delayq.core.errors import Conflict, InvalidInput, JobRunning, NotConfirmed, OutcomeUnknown
from delayq.core.ids import new_id
from delayq.core.job_spec import JobSpec, Limit, NewJob, prepare, prepare_raw, spread_out
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.core.states import OnConflict, State
from delayq.core.times import Duration, Instant, duration_ms
from delayq.core.unique import Unique, is_window
from delayq.redis.calls import inspect
from delayq.redis.calls import jobs as calls
from delayq.redis.calls.jobs import Placed, ShardsChanged
from delayq.redis.operations.base import OperationsBase, RefT, check_word
from delayq.redis.server_clock import ServerClock
from delayq.redis.session import Session
from delayq.redis.shard_counts import PATIENCE
from delayq.redis.trips import in_trips

AT_ONCE_MS: Final = 15_000
"""If the reply of a call is lost, the call may be sent again up to this many milliseconds later. A job that is due
earlier may have ended by then.
"""

_ON_CONFLICT: Final = get_args(OnConflict)
_CONFLICT_HINTS: Final[Mapping[State, str]] = {
    "reserved": "Wait until that job has ended, or use on_conflict='keep' or another id.",
    "failed": "Use on_conflict='keep' or 'replace', or delete that job: `delayq failed forget`.",
    "completed": "Use on_conflict='keep' or 'replace', or another id.",
}
"""Hints for ids of jobs that cannot be cancelled."""

REFUSED: Final = ("conflict", "running")
"""The answers for a job that was not stored."""


class SchedulingOperations(OperationsBase[RefT]):
    """Operations that schedule new jobs."""

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
        unique: str | Unique | None = None,
        encrypted: bool | None = None,
    ) -> RefT:
        """Schedule a job and return a reference to it.

            name              name of the job, which selects its handler
            data              payload: a value that JSON can carry, or `bytes` that are JSON already
            on_conflict       what to do if a job with this `id` exists in the queue; see below
            delay             time until the job is due ('15m', a timedelta)
            at                time at which the job is due: RFC 3339 text with an offset, an aware datetime, or a local
                              time with `tz`; without `delay` and `at`, the job is due now
            tz                time zone of a local `at` ('Europe/Berlin')
            fold              0 or 1: the earlier or the later time, if a local `at` occurs twice
            id                id of the job; None = a new id
            queue             queue of the job; None = the queue that the job declares, or else the queue of a route, or
                              else the default queue
            tries             maximum number of attempts; 0 = no limit
            backoff           waiting time after a failed attempt ('10s', ['10s', '1m'], Exponential('1s'))
            timeout           time limit of one attempt ('30s'); '0s' = no limit
            deadline          time after which the job is useless: the job fails if it has not started by then, and a
                              handler that still runs then is interrupted
            retry_until       time until which the job is retried; replaces `tries`
            max_exceptions    maximum number of attempts that raise an exception
            retention         how long the completed job and its result are kept ('1h'); '0s' = not kept
            headers           names and texts that are sent with the job, such as trace ids
            tags              words that are stored with the job, for people who look at it
            unique            a unique key ('invoice:42', Unique(key=['order_id'])). While another job owns the key,
                              nothing is stored, and a reference to the other job is returned, with the outcome `kept`;
                              with `on_conflict='error'`, Conflict is raised instead
            encrypted         True = encrypt the payload and the kept result; False = do not; None = as the job
                              declares, or else by the setting `encrypt`

        For `deadline` and `retry_until`, a duration counts from the due time. If this program declares a job of this
        name, its declaration supplies queue, delay, deadline, retry_until, tags, unique and encrypted that the call
        omits. For tries, backoff, timeout, max_exceptions and retention, None means the value that the handler declares
        in the worker.

        The `outcome` of the reference is `created`, unless another job owns the unique key (see `unique`), or a job
        with this `id` exists in the queue. For such an id, `on_conflict` decides:

            keep        leave that job as it is; the outcome is `kept`
            replace     replace that job; the outcome is `replaced`
            postpone    give that job the new due time, with its old payload; the outcome is `postponed`, or `kept` if
                        that job has ended
            error       raise Conflict

        Raises InvalidInput before anything is sent, and ConfigError if the job must be encrypted, but no keys are set
        or the package cryptography is not installed. With `on_conflict='error'`, raises Conflict. With `replace` and
        `postpone`, raises JobRunning if a worker has the job. Raises BackendUnavailable, BackendFull, CallRefused,
        OutcomeUnknown and NotConfirmed.
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
            unique=unique,
            encrypted=encrypted,
        )
        spec = self._session.with_destination(spec)
        now_ms = await self._server_ms() if spec.needs_server_time else int(clock.time() * 1000)
        job = prepare(spec, self._session.options, now_ms)
        if job.queue not in self._session.shards.several:  # the usual case
            try:
                (ref,) = await self._place(job.queue, 1, [job], on_conflict)
                return ref
            except ShardsChanged:
                pass
        (ref,) = await self._place_all([job], on_conflict)
        return ref

    async def schedule_many(
        self, specs: Iterable[JobSpec], *, on_conflict: OnConflict = "keep", spread: Duration | None = None
    ) -> list[RefT]:
        """Schedule jobs, up to 250 in one round trip. Return a reference to each, in the order of `specs`.

        `specs`: JobSpec objects, which have the same members as the arguments of `schedule`. `on_conflict`: as in
        `schedule`. `spread`: distribute the due times over this time ('1h'): each job becomes due up to `spread` later.
        This additional delay is computed from the id of the job, so that a job whose id is given gets the same
        additional delay in a repeated call.

        Raises the errors of `schedule`. If a later round trip fails, the jobs of the earlier round trips are stored. If
        the error is a Conflict, `error.stored` has the references of all stored jobs. If the error is OutcomeUnknown,
        `error.ids` has the ids of all jobs that are stored or may be stored. NotConfirmed is raised after all round
        trips: all jobs are stored, and `error.done` has their references.
        """
        return await self._place_all(await self.prepare_many(specs, spread=spread), on_conflict)

    async def prepare_many(self, specs: Iterable[JobSpec], *, spread: Duration | None = None) -> list[NewJob]:
        """Check jobs and write their envelopes, so that `send_prepared` can send them later; see `schedule_many`.

        A delay counts from the time when the job is sent. A duration in `deadline` or `retry_until` counts from the due
        time that the job would have if it were sent now.
        """
        given = [self._session.with_destination(spec) for spec in _checked_specs(specs)]
        needs_server_time = bool([spec for spec in given if spec.needs_server_time])
        now_ms = await self._server_ms() if needs_server_time else int(clock.time() * 1000)
        jobs = _prepare_all(given, self._session.options, now_ms)
        return jobs if spread is None else spread_out(jobs, duration_ms(spread, field="spread"))

    async def send_prepared(self, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "keep") -> list[RefT]:
        """Send jobs that `prepare_many` has returned. Returns and raises the same as `schedule_many`."""
        return await self._place_all(list(jobs), on_conflict)

    async def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Duration | None = None) -> RefT:
        """Schedule a ready-made envelope, the JSON of a job such as `JobInfo.raw`, under the id that it contains.

        `queue`: None = the queue that the envelope names. `delay`: time until the job is due; None = now. If the
        queue has a job with this id, that job is kept, and nothing is stored. Raises the errors of `schedule`.
        """
        job = prepare_raw(envelope, self._session.options, queue=queue, delay=delay)
        (ref,) = await self._place_all([job], "keep")
        return ref

    async def _place_all(self, jobs: list[NewJob], on_conflict: OnConflict) -> list[RefT]:
        """Store jobs, in round trips for one shard each. Return references to the jobs; see `schedule_many`."""
        shards = self._session.shards
        refs: dict[int, RefT] = {}
        stored: list[str] = []
        unconfirmed = None
        until = 0.0
        key_ring = self._session.options.key_ring
        left = deque(in_trips(enumerate(jobs), shards, key_ring))
        while left:
            shard, count, rows = left.popleft()
            try:
                placed = await self._place(shard, count, [job for _, job in rows], on_conflict)
            except ShardsChanged:
                until = until or time.monotonic() + PATIENCE
                await shards.follow(queue_of(shard), until=until)
                left.extendleft(reversed(list(in_trips(rows, shards, key_ring))))
                continue
            except Conflict as error:
                error.stored = [*refs.values(), *error.stored]
                raise
            except OutcomeUnknown as error:
                error.ids = [*stored, *error.ids]
                raise
            except NotConfirmed as error:
                unconfirmed, placed = error, list(error.done)
            until = 0.0
            stored += [job.id for _, job in rows]
            for (position, _), ref in zip(rows, placed, strict=True):
                refs[position] = ref
        in_order = [refs[position] for position in range(len(jobs))]
        if unconfirmed is not None:
            unconfirmed.done = tuple(in_order)
            raise unconfirmed
        return in_order

    async def _place(self, shard: str, count: int, jobs: list[NewJob], on_conflict: OnConflict) -> list[RefT]:
        """Store jobs of one shard in one round trip, and return references to them.

        `count`: the number of shards that `shard` was computed from. Raises ShardsChanged if this number is wrong.
        """
        check_word("on_conflict", on_conflict, _ON_CONFLICT)
        session = self._session
        if session.create_storage is not None:
            session.create_storage()
        if on_conflict in ("keep", "error"):
            call = calls.schedule(
                session.keys,
                shard,
                jobs,
                taken="kept" if on_conflict == "keep" else "conflict",
                high_water=session.options.high_water,
                lease_ms=session.options.lease_ms,
                token=new_id() if on_conflict == "error" or _may_end_before_resend(jobs) else "",
                shards=count,
            )
        else:
            _refuse_windows(jobs, on_conflict)
            word: Any = "replaced" if on_conflict == "replace" else "postponed"
            lease_ms = session.options.lease_ms
            call = calls.replace(session.keys, shard, jobs, word=word, lease_ms=lease_ms, token=new_id(), shards=count)
        unconfirmed = None
        try:
            placed = await session.write(call, shard, may_create=True)
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
        """Return the reference for a stored job. Raises Conflict or JobRunning if the job was not stored.

        If this call made the id, the answer `kept` means that an earlier try of the same call stored the job. The
        outcome is therefore `created`.
        """
        outcome = placed.answer
        if outcome == "created":
            return self._make_ref(placed.id, job.queue, placed.state, placed.due_ms, outcome, job.name)
        if outcome == "kept" and not job.has_own_id and placed.id == job.id:
            outcome = "created"
        if outcome == "conflict":
            raise _conflict(job, placed)
        if outcome == "running":
            raise JobRunning(f"The job {job.id!r} is running, so it was not changed.", hint="Use another id.")
        return self._make_ref(placed.id, job.queue, placed.state, placed.due_ms, outcome, job.name)

    async def _server_ms(self) -> int:
        """Return the time of the server in epoch ms, which is read once a minute.

        If a test has given a clock, its time is returned instead.
        """
        if clock.is_given():
            return int(clock.time() * 1000)
        if self._clock.is_due():
            if self._session.create_storage is not None:
                self._session.create_storage()
            self._clock.set(await self._session.executor.run(inspect.server_time_ms()))
        return self._clock.now_ms()


def _conflict(job: NewJob, placed: Placed) -> Conflict:
    if placed.id != job.id:
        state = "has ended" if placed.state == "absent" else f"is {placed.state}"
        return Conflict(
            f"The unique key of the job {job.name!r} is taken by the job {placed.id!r}, which {state}.",
            hint="Wait until the window of the key is over, or use another key."
            if is_window(job.lock)
            else f"Cancel the job {placed.id!r} to free the key.",
            field="unique",
        )
    return Conflict(
        f"The id {job.id!r} is taken by a job that is {placed.state}.",
        hint=_CONFLICT_HINTS.get(placed.state, "Cancel that job, or use on_conflict='keep', 'replace' or 'postpone'."),
        field="on_conflict",
    )


def _checked_specs(specs: Iterable[JobSpec]) -> list[JobSpec]:
    given = list(specs)
    for position, spec in enumerate(given):
        if spec.__class__ is not JobSpec and not isinstance(spec, JobSpec):
            raise InvalidInput(
                f"specs[{position}] is {shown(spec)}, not a JobSpec.",
                hint="Use JobSpec('order.close', …).",
                field="specs",
            )
    return given


def _prepare_all(specs: list[JobSpec], options: Options, now_ms: int) -> list[NewJob]:
    jobs = []
    for position, spec in enumerate(specs):
        try:
            jobs.append(prepare(spec, options, now_ms))
        except InvalidInput as error:
            if len(specs) == 1:
                raise
            raise InvalidInput(f"specs[{position}]: {error.message}", hint=error.hint, field=error.field) from None
    return jobs


def _refuse_windows(jobs: list[NewJob], on_conflict: OnConflict) -> None:
    if [job for job in jobs if is_window(job.lock)]:
        raise InvalidInput(
            f"on_conflict is {on_conflict!r}, which cannot be used with a unique key that has a window, because such a "
            "key stays taken until the window has passed.",
            hint="Use on_conflict='keep' or 'error'.",
            field="on_conflict",
        )


def _may_end_before_resend(jobs: list[NewJob]) -> bool:
    """Return True if one of the jobs may end before a call whose reply was lost is sent again.

    The second call would then store the job again. The token of the call lets the server recognize the second call. A
    job may end so soon because it is due soon, or because another client, which knows the id that the caller chose,
    cancels it or runs it now.
    """
    for job in jobs:  # a loop, because a comprehension would cost `schedule` one more function call
        if job.has_own_id:
            return True
    return bool([when for when in {job.when for job in jobs} if when[0] != "+" or int(when) <= AT_ONCE_MS])
