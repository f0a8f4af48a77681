"""Every verb once, without I/O: a generator that yields what to send and is given the answers.

The two shells (`client` for threads, `aio` for asyncio) run these and hold no rules of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.durability import MEMORY, Durability
from delayq.core.events import JobRetryRequested, Tell, nobody_listens
from delayq.core.names import check_id, check_queue, new_id
from delayq.core.options import Options
from delayq.core.sealing import reveal
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw, when
from delayq.core.states import Answer, OnConflict, State
from delayq.core.unique import again_of
from delayq.core.views import JobInfo, JobRef, Page, QueueStats, Upcoming
from delayq.core.when import duration_ms
from delayq.redis.calls import inspect, produce
from delayq.redis.calls.call import Call, Command, Scope, text
from delayq.redis.calls.refusals import refusal
from delayq.redis.confirm import Confirm
from delayq.redis.durable import Durable, undone
from delayq.redis.keys import Globals
from delayq.redis.server_time import ServerTime, epoch_ms

T = TypeVar("T")
Flow = Generator[Call[Any] | Command[Any] | tuple[Call[Any], ...] | Confirm, Any, T]
"""Yields a call, several that may be under way together and of which each may be sent again, or some to be confirmed;
gets the answers."""
Items = Iterable[JobSpec | Mapping[str, Any]]
Clock = Callable[[], int | None]
Ask = Callable[[Scope], Call[produce.Outcome]]

RETRY_READS = 5
UNDER_WAY = 8
"""Chunks of a `schedule_many` sent before the first answer is read: the server works while we pack and unpack."""


def server_clock() -> None:
    """The clock of normal use: none, so that the server's own decides."""


class Verbs:
    """The verbs on one prefix. `clock` gives the scripts another time than the server's; only tests do.

    `tell` is told of what people do to jobs and queues.
    """

    def __init__(self, options: Options, clock: Clock = server_clock) -> None:
        self.options = options
        self.clock = clock
        self.durable = Durable(options)
        self.tell: Tell = nobody_listens
        self._registered: set[str] = set()
        self._time = ServerTime()

    def scope(self, queue: str | None) -> Scope:
        """Where and when; a missing queue name is the default queue, never searched."""
        return self._scope(check_queue(self.options.queue if queue is None else queue))

    def _scope(self, queue: str) -> Scope:
        return Scope(self.options, queue, self.clock())

    def _places(self, queue: str | None) -> list[Scope]:
        """Where a job of that queue may be: where the queue is forwarded to, then what was in it before."""
        scope = self.scope(queue)
        target = self.options.sent_to(scope.queue)
        return [scope] if target == scope.queue else [self._scope(target), scope]

    # -- producing ---------------------------------------------------------------------------------------------------

    def schedule(self, spec: JobSpec, on_conflict: OnConflict, durability: str | None = None) -> Flow[JobRef]:
        """One job; raises when the answer is a refusal."""
        now_ms = (yield from self.server_ms()) if spec.timed else self._local_ms()
        ref = yield from self._schedule_one(prepare(spec, self.options, now_ms, on_conflict), on_conflict, durability)
        return ref

    def push_raw(self, raw: bytes, queue: str | None, delay: Delay | None) -> Flow[JobRef]:
        """An envelope that is made already, byte for byte; its id is kept when taken."""
        ref = yield from self._schedule_one(prepare_raw(raw, self.options, queue, delay), OnConflict.KEEP)
        return ref

    def _schedule_one(self, job: Prepared, on_conflict: OnConflict, durability: str | None = None) -> Flow[JobRef]:
        if job.queue not in self._registered:
            yield from self.register(job.queue)
        token = new_id() if job.own_id else job.id  # an id made for this call is a token as good as another
        scope = self._scope(job.queue)
        wanted = yield from self.durable.wanted(scope, durability)
        call = produce.schedule(scope, [job], on_conflict, token)
        scheduled, missing = yield from self.durable.answer(scope, call, wanted, produce.stored)
        if scheduled.new_queue:
            yield from self._register_anew(job.queue)
        [ref] = scheduled.refs
        if isinstance(ref.outcome, Answer) and ref.outcome is not Answer.CREATED:
            mine = job.id if job.own_id else ref.id
            if error := refusal(ref.outcome, mine, ref.queue, owner="" if ref.id == mine else ref.id):
                raise error
        self.durable.check([ref], wanted, missing)
        return ref

    def schedule_many(self, items: Items, on_conflict: OnConflict, durability: str | None = None) -> Flow[list[JobRef]]:
        """Any number of jobs, each with its outcome, in the order given. All are checked before the first is sent."""
        specs = [item if isinstance(item, JobSpec) else JobSpec(**item) for item in items]
        now_ms = (yield from self.server_ms()) if any(spec.timed for spec in specs) else self._local_ms()
        jobs = [prepare(spec, self.options, now_ms, on_conflict) for spec in specs]
        places: dict[str, list[int]] = {}
        for n, job in enumerate(jobs):
            places.setdefault(job.queue, []).append(n)
        found: dict[int, JobRef] = {}
        missing, wanted = "", MEMORY
        for queue, numbers in sorted(places.items()):
            safe = yield from self.durable.wanted(self._scope(queue), durability)
            refs, short = yield from self._schedule_in(queue, [jobs[n] for n in numbers], on_conflict, safe)
            found.update(zip(numbers, refs, strict=True))
            missing, wanted = (short, safe) if short else (missing, wanted)
        refs = [found[n] for n in range(len(jobs))]
        self.durable.check(refs, wanted, missing)
        return refs

    def _schedule_in(
        self, queue: str, jobs: Sequence[Prepared], on_conflict: OnConflict, wanted: Durability
    ) -> Flow[tuple[list[JobRef], str]]:
        """Jobs of one queue, several chunks under way at a time; and what was not confirmed, after which the rest is
        sent without waiting."""
        yield from self.register(queue)
        scope, refs, missing = self._scope(queue), list[JobRef](), ""
        calls = (produce.schedule(scope, chunk, on_conflict, new_id()) for chunk in produce.chunks(jobs))
        while some := tuple(islice(calls, UNDER_WAY)):
            if wanted.waits and not missing:
                answers, missing = yield from self.durable.answers(scope, some, wanted, produce.stored)
            else:
                answers = yield some
            for scheduled in answers:
                if scheduled.new_queue:
                    yield from self._register_anew(queue)
                refs += scheduled.refs
        return refs, missing

    def register(self, queue: str) -> Flow[None]:
        """Make a queue known to movers, once per client and again when the server forgot it."""
        if queue not in self._registered:
            yield Command(("SADD", Globals(self.options.prefix).queues, queue), int)
            self._registered.add(queue)

    def _register_anew(self, queue: str) -> Flow[None]:
        """The server did not know this queue: what it knew of it before is gone."""
        self.forget_registered(queue)
        self.durable.forget(queue)
        yield from self.register(queue)

    def forget_registered(self, queue: str) -> None:
        """Let the next `register` send the name again."""
        self._registered.discard(queue)

    def cancel(self, job_id: str, queue: str | None, *, running: bool, durability: str | None = None) -> Flow[Answer]:
        """The answer decides what the caller does next, so it is returned and never raised."""
        answer = Answer.UNKNOWN
        for scope in self._places(queue):
            wanted = yield from self.durable.wanted(scope, durability)
            call = produce.cancel(scope, check_id(job_id), running=running, token=new_id())
            answer, missing = yield from self.durable.answer(scope, call, wanted, Answer.CANCELLED.__eq__)
            if missing:
                raise undone(job_id, scope.queue, missing, wanted)
            if answer is not Answer.UNKNOWN:
                break
        return answer

    def reschedule(self, job_id: str, queue: str | None, spec: JobSpec, durability: str | None = None) -> Flow[JobRef]:
        """A new due time, taken from `spec`."""
        due = when(spec, self._local_ms())
        ask = partial(produce.reschedule, job_id=job_id, when=due)
        return (yield from self._first_known(job_id, queue, ask, durability))

    def run_now(self, job_id: str, queue: str | None) -> Flow[JobRef]:
        """Ready at once; only due at once on a paused queue."""
        return (yield from self._first_known(job_id, queue, partial(produce.run_now, job_id=job_id)))

    def retry(self, job_id: str, queue: str | None) -> Flow[JobRef]:
        """A failed job from the start; read, rewrite, and again when somebody was faster."""
        scope, *others = self._places(queue)
        if others and (yield inspect.get(scope, check_id(job_id))) is None:
            scope = others[0]
        outcome, name = produce.Outcome(Answer.CHANGED), ""
        for _ in range(RETRY_READS):
            info: JobInfo | None = yield inspect.get(scope, check_id(job_id))
            raw, envelope = (info.raw, info.envelope) if info else (b"", None)
            name = envelope.name if envelope else ""
            fresh = envelopes.afresh(raw, envelope, (yield from self.server_ms())) if envelope else raw
            digest = again_of(envelope.unique) if envelope else ""
            todo = follow.encode_todo(follow.restarted(raw))
            outcome = yield produce.retry(scope, job_id, envelopes.fingerprint(raw), fresh, digest, todo)
            if outcome.answer is not Answer.CHANGED:
                break
        ref = self._ref(outcome, job_id, scope.queue, name)
        self.tell(JobRetryRequested(job_id, name, scope.queue))
        return ref

    def forget(self, job_ids: Sequence[str], queue: str | None) -> Flow[list[Answer]]:
        """Drop failed or completed jobs; an answer for each."""
        answers: list[Answer] = []
        for start in range(0, len(job_ids), produce.MAX_JOBS):
            some = [check_id(job_id) for job_id in job_ids[start : start + produce.MAX_JOBS]]
            answers += yield produce.forget(self.scope(queue), some)
        return answers

    def _first_known(self, job_id: str, queue: str | None, ask: Ask, durability: str | None = None) -> Flow[JobRef]:
        """Ask for a job where it may be, until it is known."""
        check_id(job_id)
        outcome, place, wanted, missing = produce.Outcome(Answer.UNKNOWN), "", MEMORY, ""
        for scope in self._places(queue):
            place, wanted = scope.queue, (yield from self.durable.wanted(scope, durability))
            outcome, missing = yield from self.durable.answer(scope, ask(scope), wanted, produce.moved)
            if outcome.answer is not Answer.UNKNOWN:
                break
        ref = self._ref(outcome, job_id, place)
        self.durable.check([ref], wanted, missing)
        return ref

    def _ref(self, outcome: produce.Outcome, job_id: str, queue: str, name: str = "") -> JobRef:
        if error := refusal(outcome.answer, job_id, queue, owner=outcome.owner):
            raise error
        state = State.READY if outcome.answer is Answer.READY else State.SCHEDULED
        return JobRef(job_id, queue, state, outcome.due_ms, outcome.answer, name)

    # -- looking and switching ---------------------------------------------------------------------------------------

    def get(self, job_id: str, queue: str | None) -> Flow[JobInfo | None]:
        """Everything known about one job."""
        for scope in self._places(queue):
            info: JobInfo | None = yield inspect.get(scope, check_id(job_id))
            if info is not None:
                return reveal(self.options.keyring, info)
        return None

    def list_jobs(self, state: State, queue: str | None, cursor: str, limit: int) -> Flow[Page]:
        """One page of the jobs in one state."""
        page: Page = yield inspect.list_jobs(self.scope(queue), state, cursor, max(1, min(limit, produce.MAX_JOBS)))
        return page

    def queues(self) -> Flow[list[str]]:
        """All known queues, sorted."""
        names: list[str] = yield Command(
            ("SMEMBERS", Globals(self.options.prefix).queues), lambda reply: sorted(map(text, reply)), reads=True
        )
        return names

    def stats(self, queue: str | None) -> Flow[list[QueueStats]]:
        """Counts of one queue, or of all known."""
        names = (yield from self.queues()) if queue is None else [queue]
        found: list[QueueStats] = []
        for name in names:
            found += [(yield inspect.stats(self.scope(name)))]
        return found

    def upcoming(self, queue: str | None, span: str, spans: int) -> Flow[Upcoming]:
        """A histogram of due times."""
        histogram: Upcoming = yield inspect.upcoming(self.scope(queue), max(1, duration_ms(span)), spans)
        return histogram

    def server_ms(self) -> Flow[int]:
        """The server's time: asked for once a minute at most, and carried on by a clock that nobody sets."""
        told = self.clock()
        if told is not None:
            return told
        if not self._time.known:
            self._time.see((yield Command(("TIME",), epoch_ms, True)))
        return self._time.now_ms()

    def _local_ms(self) -> int:
        return self.clock() or time.time_ns() // 1_000_000
