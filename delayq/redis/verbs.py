"""Every verb once, without I/O: a generator that yields what to send and is given the answers.

The two shells (`client` for threads, `aio` for asyncio) run these and hold no rules of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from delayq.core.audit import Door
from delayq.core.errors import BackendError, ConfigError
from delayq.core.events import Tell, nobody_listens
from delayq.core.names import check_id, check_queue, ids_of, new_id
from delayq.core.options import Options
from delayq.core.sealing import reveal
from delayq.core.shards import PLAIN, Layout, names_a_shard, queue_of
from delayq.core.shown import shown
from delayq.core.spec import AT_ONCE, Delay, JobSpec, Prepared, prepare, prepare_raw, when
from delayq.core.states import Answer, OnConflict, State, worst
from delayq.core.views import JobInfo, JobRef
from delayq.redis import interception
from delayq.redis.calls import inspect, produce
from delayq.redis.calls.call import Call, Command, Scope, pages, text
from delayq.redis.calls.refusals import accepted, found_elsewhere, not_all_searched, refusal
from delayq.redis.confirm import Confirm
from delayq.redis.durable import Durable, undone
from delayq.redis.finding import every_shard, find, look
from delayq.redis.keys import Globals
from delayq.redis.layouts import Layouts
from delayq.redis.placing import Batch, Way, put
from delayq.redis.server_time import ServerTime, epoch_ms

log = logging.getLogger(__name__)
T = TypeVar("T")
Flow = Generator[Call[Any] | Command[Any] | tuple[Call[Any] | Command[Any], ...] | Confirm, Any, T]
"""Yields a call, several that may be under way together and of which each may be sent again, or some to be confirmed;
gets the answers."""
Items = Iterable[JobSpec | Mapping[str, Any]]
Clock = Callable[[], int | None]
Ask = Callable[[Scope], Call[produce.Outcome]]

RETRY_READS = 5
OWED_S = 5.0
"""So long after a try that failed, the list of queues is not asked again to take a name."""
MOST_SEARCHED = 2_000
"""Shards that are asked for a job whose queue was not named and that the default queue does not have."""

_MAY_RUN = (State.ABSENT, State.COMPLETED, State.FAILED, State.SCHEDULED, State.READY, State.RESERVED)
"""States, the one nearest to a run last: it is shown of a job that several queues hold."""


def server_clock() -> int | None:
    """The clock of normal use: None, so that the server's own decides. Inside of a test's virtual time: that."""
    return interception.now_ms() if interception.active else None


class _Listed(NamedTuple):
    """The list of queues as it was read: its `names`, and what they stand for, sorted."""

    names: set[bytes]
    queues: tuple[str, ...]
    shards: tuple[str, ...]
    no_queues: tuple[str, ...]


def _listed(names: set[bytes]) -> _Listed:
    written = sorted(map(text, names))
    shards = tuple(filter(names_a_shard, written))
    no_queues = () if len(shards) == len(written) else tuple(name for name in written if not names_a_shard(name))
    return _Listed(names, tuple(sorted(set(map(queue_of, shards)))), shards, no_queues)


def _as_it_is(spec: JobSpec, job: object) -> JobSpec:
    return spec


class Verbs:
    """The verbs on one prefix. `clock` gives the scripts another time than the server's; only tests do.

    `tell` is told of what people do to jobs and queues; `door` is where they came in, for the audit log. `declaring`
    has the jobs of this program that declare options, by name; `complete` adds these options to a spec of that name.
    """

    def __init__(self, options: Options, clock: Clock = server_clock) -> None:
        self.options = options
        self.clock = clock
        self.durable = Durable(options)
        self.tell: Tell = nobody_listens
        self.door = Door.PROGRAM
        self.declaring: Mapping[str, Any] = {}
        self.complete: Callable[[JobSpec, Any], JobSpec] = _as_it_is
        self.layouts = Layouts(options.prefix)
        self._registered: set[str] = set()
        self._owed_until: dict[str, float] = {}
        self._time = ServerTime()
        self._no_queues: Sequence[str] = ()
        self._last = _listed(set())

    def scope(self, queue: str | None) -> Scope:
        """Where and when; a missing queue name is the default queue, never searched."""
        return self._scope(check_queue(self.options.queue if queue is None else queue))

    def shard(self, shard: str, layout: Layout = PLAIN, *, asks: bool = False) -> Scope:
        """One shard of a queue; the first one is called as the queue. See `Scope`."""
        return Scope(self.options, shard, self.clock(), layout, asks)

    def _scope(self, queue: str) -> Scope:
        return Scope(self.options, queue, self.clock(), self.layouts.of(queue))

    def _queues(self, queue: str | None) -> list[str]:
        """The queues that may hold a job of `queue`: the one it is forwarded to, then itself."""
        name = self.scope(queue).queue
        return list(dict.fromkeys((self.options.sent_to(name), name)))

    # -- producing ---------------------------------------------------------------------------------------------------

    def schedule(self, spec: JobSpec, on_conflict: OnConflict, durability: str | None = None) -> Flow[JobRef]:
        """One job; raises when the answer is a refusal."""
        if self.declaring:
            spec = self._completed(spec)
        if spec.timed:
            return self._schedule_timed(spec, on_conflict, durability)
        job = prepare(spec, self.options, self._local_ms(), on_conflict)
        return self._schedule_one(job, on_conflict, durability)

    def _completed(self, spec: JobSpec) -> JobSpec:
        """With what the job of that name declares."""
        job = self.declaring.get(str(spec.name))
        return spec if job is None else self.complete(spec, job)

    def push_raw(self, raw: bytes, queue: str | None, delay: Delay | None) -> Flow[JobRef]:
        """An envelope that is made already, byte for byte; its id is kept when taken."""
        return self._schedule_one(prepare_raw(raw, self.options, queue, delay), OnConflict.KEEP)

    def push_copy(self, raw: bytes, queue: str, delay: Delay | None) -> Flow[JobRef]:
        """As `push_raw`; an id that is taken is a conflict."""
        return self._schedule_one(prepare_raw(raw, self.options, queue, delay), OnConflict.ERROR)

    def _schedule_timed(self, spec: JobSpec, on_conflict: OnConflict, durability: str | None) -> Flow[JobRef]:
        job = prepare(spec, self.options, (yield from self.server_ms()), on_conflict)
        return (yield from self._schedule_one(job, on_conflict, durability))

    def _schedule_one(self, job: Prepared, on_conflict: OnConflict, durability: str | None = None) -> Flow[JobRef]:
        if interception.active:
            [taken] = interception.taken([job], on_conflict, self.options)
            if taken is not None:
                return accepted(taken, job)
        if job.queue not in self._registered:
            yield from self.register(job.queue)
        scope = Scope(self.options, job.queue, self.clock(), self.layouts.of(job.queue))
        wanted = self.durable.known(job.queue) if durability is None else None
        if wanted is None:
            wanted = yield from self.durable.wanted(scope, durability)
        plain = not wanted.waits and (scope.layout is PLAIN or scope.layout.listed == 1) and not job.forwarded_from
        if plain and job.when != AT_ONCE and (short := produce.later(scope, [job], on_conflict)):
            waiting: produce.Scheduled = yield short
            if not waiting.undone:
                return waiting.refs[0]
        token = new_id() if job.own_id else job.id  # an id made for this call is a token as good as another
        if plain:
            scheduled: produce.Scheduled = yield produce.schedule(scope, [job], on_conflict, token)
            if scheduled.moved is None:
                if scheduled.new_queue:
                    yield from self.register_anew(job.queue)
                return accepted(scheduled.refs[0], job)
            self.layouts.moved(job.queue, scheduled.moved)
        way = Way(self.durable, wanted)

        def make(scope: Scope, jobs: Sequence[Prepared]) -> list[Batch]:
            return [Batch(produce.schedule(scope, jobs, on_conflict, token), jobs)]

        [ref] = yield from put(self, job.queue, [job], make, way, strict=True)
        accepted(ref, job)
        way.check([ref])
        return ref

    def schedule_many(self, items: Items, on_conflict: OnConflict, durability: str | None = None) -> Flow[list[JobRef]]:
        """Any number of jobs, each with its outcome, in the order given. All are checked before the first is sent."""
        specs = [item if isinstance(item, JobSpec) else JobSpec(**item) for item in items]
        if self.declaring:
            specs = [self._completed(spec) for spec in specs]
        now_ms = (yield from self.server_ms()) if any(spec.timed for spec in specs) else self._local_ms()
        jobs = [prepare(spec, self.options, now_ms, on_conflict) for spec in specs]
        if not interception.active:
            return (yield from self._schedule_all(jobs, on_conflict, durability))
        taken = interception.taken(jobs, on_conflict, self.options)
        left = [job for job, ref in zip(jobs, taken, strict=True) if ref is None]
        sent = iter((yield from self._schedule_all(left, on_conflict, durability)) if left else [])
        return [next(sent) if ref is None else ref for ref in taken]

    def _schedule_all(
        self, jobs: Sequence[Prepared], on_conflict: OnConflict, durability: str | None
    ) -> Flow[list[JobRef]]:
        """All of them, queue by queue."""
        way = Way(self.durable)
        if len({job.queue for job in jobs}) == 1:
            refs = yield from self._schedule_in(jobs[0].queue, jobs, on_conflict, durability, way)
        else:
            refs = yield from self._schedule_over(jobs, on_conflict, durability, way)
        way.check(refs)
        return refs

    def _schedule_over(
        self, jobs: Sequence[Prepared], on_conflict: OnConflict, durability: str | None, way: Way
    ) -> Flow[list[JobRef]]:
        """Jobs of several queues, one queue after the other."""
        found: dict[int, JobRef] = {}
        for queue, numbers in produce.by_queue(jobs):
            refs = yield from self._schedule_in(queue, [jobs[n] for n in numbers], on_conflict, durability, way)
            found.update(zip(numbers, refs, strict=True))
        return [found[n] for n in range(len(jobs))]

    def _schedule_in(
        self, queue: str, jobs: Sequence[Prepared], on_conflict: OnConflict, durability: str | None, way: Way
    ) -> Flow[list[JobRef]]:
        """Jobs of one queue, several chunks under way at a time."""
        way.wanted = yield from self.durable.wanted(self.shard(queue), durability)
        # A new queue is for `schedule`. So is an id that is there twice, as the first of them is to be made.
        fresh, doubled = queue not in self._registered, len({job.id for job in jobs}) < len(jobs)
        yield from self.register(queue)

        def make(scope: Scope, mine: Sequence[Prepared]) -> Iterator[Batch]:
            plain = not (doubled or way.wanted.waits or scope.layout.spread)
            for n, some in enumerate(produce.chunks(mine)):
                full = partial(produce.schedule, scope, some, on_conflict, new_id())
                short = produce.later(scope, some, on_conflict) if plain and not (fresh and n == 0) else None
                yield Batch(short or full(), some, full)

        return (yield from put(self, queue, jobs, make, way, strict=True))

    def register(self, queue: str) -> Flow[None]:
        """Make a queue known to movers, once per client and again when the server forgot it.

        The list of queues has one node of a cluster. While that node is away, the queue's own node may well be there:
        then the name is owed, and sent by a later call.
        """
        if queue in self._registered or self._owed_until.get(queue, 0) > time.monotonic():
            return
        try:
            yield Command(("SADD", Globals(self.options.prefix).queues, queue), int, hasty=True)
        except BackendError as error:
            if not error.apart:
                raise
            if queue not in self._owed_until:
                log.warning(
                    "the queue %s is not on the list of queues yet: %s The next schedule into it adds it, from any "
                    "process, or: delayq queue set %s",
                    queue,
                    error,
                    queue,
                )
            self._owed_until[queue] = time.monotonic() + OWED_S
        else:
            self._registered.add(queue)
            self._owed_until.pop(queue, None)

    def register_anew(self, queue: str) -> Flow[None]:
        """The server did not know this queue: what it knew of it before is gone."""
        self.durable.forget(queue)
        for shard in self.layouts.of(queue).shards(queue):
            self.forget_registered(shard)
            yield from self.register(shard)

    def forget_registered(self, queue: str) -> None:
        """Let the next `register` send the name again."""
        self._registered.discard(queue)

    def cancel(self, job_id: str, queue: str | None, *, running: bool, durability: str | None = None) -> Flow[Answer]:
        """The answer decides what the caller does next, so it is returned and never raised."""
        return (yield from self.cancelled(job_id, queue, running=running, durability=durability)).answer

    def cancelled(
        self, job_id: str, queue: str | None, *, running: bool = False, durability: str | None = None, only: str = ""
    ) -> Flow[produce.Cancelled]:
        """As `cancel`, of a job whose envelope holds `only`; with that envelope, if anything follows its end."""
        token = new_id()

        def make(scope: Scope) -> Call[produce.Cancelled]:
            return produce.cancel_only(scope, job_id, running=running, token=token, only=only)

        return (yield from self._ended(job_id, queue, make, Answer.CANCELLED, durability))

    def archived(self, job_id: str, queue: str | None, reason: str, durability: str | None) -> Flow[produce.Cancelled]:
        """Put a waiting job among the failed; with its envelope, if anything follows its end."""
        token = new_id()

        def make(scope: Scope) -> Call[produce.Cancelled]:
            return produce.archive(scope, job_id, reason, token=token)

        return (yield from self._ended(job_id, queue, make, Answer.ARCHIVED, durability))

    def _ended(
        self,
        job_id: str,
        queue: str | None,
        make: Callable[[Scope], Call[produce.Cancelled]],
        success: Answer,
        durability: str | None,
    ) -> Flow[produce.Cancelled]:
        """End a waiting job wherever it may be; the worst of the answers."""
        check_id(job_id)
        way = Way(self.durable)

        def act(scope: Scope) -> Flow[produce.Cancelled]:
            way.wanted = yield from self.durable.wanted(self.shard(scope.name), durability)
            return (yield from way.one(scope, make(scope), lambda done: done.answer is success))

        queues = self._queues(queue)
        found = yield from find(self, queues, job_id, act, lambda done: done.answer is not Answer.UNKNOWN)
        scope, done = worst(found, key=lambda pair: pair[1].answer)
        if way.missing:
            raise undone(job_id, scope.name, way.missing, way.asked)
        if queue is None and done.answer is Answer.UNKNOWN:
            yield from self.elsewhere(job_id)
        return done

    def reschedule(self, job_id: str, queue: str | None, spec: JobSpec, durability: str | None = None) -> Flow[JobRef]:
        """A new due time, taken from `spec`."""
        due = when(spec, self._local_ms())
        ask = partial(produce.reschedule, job_id=job_id, when=due)
        return (yield from self._changed(job_id, queue, ask, durability))

    def run_now(self, job_id: str, queue: str | None) -> Flow[JobRef]:
        """Ready at once; only due at once on a paused queue."""
        return (yield from self._changed(job_id, queue, partial(produce.run_now, job_id=job_id)))

    def forget(self, job_ids: str | Iterable[str], queue: str | None) -> Flow[list[Answer]]:
        """Drop failed or completed jobs; an answer for each. A text is one id."""
        job_ids = ids_of(job_ids)
        answers = dict.fromkeys(job_ids, Answer.UNKNOWN)
        for name in self._queues(queue):
            left = list(answers)
            for scope in (yield from every_shard(self, name)):
                unknown: list[str] = []
                for some in pages(left, produce.MAX_JOBS):
                    for job_id, answer in zip(some, (yield produce.forget(scope, some)), strict=True):
                        answers[job_id] = worst((answers[job_id], answer), key=lambda said: said)
                        unknown += [job_id] if answer is Answer.UNKNOWN else []
                left = unknown
        done = [answers[job_id] for job_id in job_ids]
        if queue is None:
            for job_id in (one for one, answer in answers.items() if answer is Answer.UNKNOWN):
                yield from self.elsewhere(job_id, done=tuple(done))
        return done

    def _having(self, job_id: str, asked: Sequence[str]) -> Flow[tuple[list[str], int]]:
        """The queues but `asked` that have a job with this id, and how many queues were not searched."""
        others = [name for name in (yield from self.shards()) if queue_of(name) not in asked]
        others, left = others[:MOST_SEARCHED], others[MOST_SEARCHED:]
        having: list[str] = []
        for names in pages(others, produce.MAX_JOBS):
            keys = [self.shard(name).keys.of("jobs") for name in names]
            found: list[int] = yield tuple(Command(("HEXISTS", key, job_id), int, True) for key in keys)
            having += [queue_of(name) for name, there in zip(names, found, strict=True) if there]
        return having, len(set(map(queue_of, left)))

    def elsewhere(
        self, job_id: str, queue: str | None = None, done: tuple[object, ...] = (), advice: str = ""
    ) -> Flow[None]:
        """Look for a job that `queue` (None: the default queue) does not have in all others, in two round trips.

        Raises `FoundElsewhere`. At most `MOST_SEARCHED` shards are asked; `NotAllSearched` when there are more, and
        those do not have it. A call that names its queue pays nothing. `advice` as in `found_elsewhere`.
        """
        asked = self._queues(queue)
        try:
            having, left = yield from self._having(job_id, asked)
        except ConfigError:  # a user with few permissions may not look; the answer of its own queue stands
            return
        if having:
            raise found_elsewhere(job_id, asked[-1], tuple(dict.fromkeys(having)), done, advice)
        if left:
            raise not_all_searched(job_id, asked[-1], left, done, advice)

    def _changed(self, job_id: str, queue: str | None, ask: Ask, durability: str | None = None) -> Flow[JobRef]:
        """Change a waiting job in each queue that may hold it; the worst answer counts."""
        check_id(job_id)
        way = Way(self.durable)

        def act(scope: Scope) -> Flow[produce.Outcome]:
            way.wanted = yield from self.durable.wanted(self.shard(scope.name), durability)
            return (yield from way.one(scope, ask(scope), produce.moved))

        queues = self._queues(queue)
        found = yield from find(self, queues, job_id, act, lambda said: said.answer is not Answer.UNKNOWN)
        scope, outcome = worst(found, key=lambda pair: pair[1].answer)
        if queue is None and outcome.answer is Answer.UNKNOWN:
            yield from self.elsewhere(job_id)
        ref = self.ref(outcome, job_id, scope.name)
        way.check([ref])
        return ref

    def ref(self, outcome: produce.Outcome, job_id: str, queue: str, name: str = "") -> JobRef:
        """A job that was changed; raises what a refusal means."""
        if error := refusal(outcome.answer, job_id, queue, owner=outcome.owner):
            raise error
        state = State.READY if outcome.answer is Answer.READY else State.SCHEDULED
        return JobRef(job_id, queue, state, outcome.due_ms, outcome.answer, name)

    # -- looking and switching ---------------------------------------------------------------------------------------

    def get(self, job_id: str, queue: str | None) -> Flow[JobInfo | None]:
        """Everything known about one job."""
        _, info = yield from self.read(job_id, queue)
        if info is None and queue is None:
            yield from self.elsewhere(job_id)
        return None if info is None else reveal(self.options.keyring, info)

    def read(self, job_id: str, queue: str | None) -> Flow[tuple[Scope, JobInfo | None]]:
        """A job as it is stored, and its shard."""
        check_id(job_id)
        ask = partial(inspect.get, job_id=job_id)
        found = yield from look(self, self._queues(queue), ask, lambda info: info is not None)
        return max(found, key=lambda pair: _MAY_RUN.index(pair[1].state) if pair[1] else -1)

    def queues(self) -> Flow[list[str]]:
        """All known queues, sorted. What somebody else put on the list, and can be called no queue, is told of once."""
        listed = yield from self._listed()
        no_queues = listed.no_queues
        if no_queues and no_queues != self._no_queues:
            more = f" and {len(no_queues) - 1} more" if len(no_queues) > 1 else ""
            log.warning("left out of the list of queues, as no queue is called so: %s%s", shown(no_queues[0]), more)
        self._no_queues = no_queues
        return list(listed.queues)

    def shards(self) -> Flow[list[str]]:
        """All shards of all known queues, sorted; the first one of each is called as the queue."""
        return list((yield from self._listed()).shards)

    def _listed(self) -> Flow[_Listed]:
        """Read the list of queues. Ten thousand names are sorted out again only when the list has changed."""
        names: set[bytes] = yield Command(("SMEMBERS", Globals(self.options.prefix).queues), set, reads=True)
        last = self._last
        if names != last.names:
            self._last = last = _listed(names)
        return last

    def server_ms(self) -> Flow[int]:
        """The server's time: asked for once a minute at most, and carried on by a clock that nobody sets."""
        if (told := self.clock()) is not None:
            return told
        if not self._time.known:
            self._time.see((yield Command(("TIME",), epoch_ms, True)))
        return self._time.now_ms()

    def _local_ms(self) -> int:
        return self.clock() or time.time_ns() // 1_000_000
