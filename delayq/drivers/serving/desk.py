"""What people ask and do about the jobs of a broker's connection, in the words of the Redis client.

What the backend cannot do is refused in one sentence. What it cannot tell (a queue's reserved jobs, say) counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self, Unpack

from msgspec import structs

from delayq.core import envelope as envelopes
from delayq.core.control import Control
from delayq.core.errors import BadEnvelope, JobNotFound, JobRunning
from delayq.core.names import check_queue
from delayq.core.options import Options
from delayq.core.spec import JobSpec, when
from delayq.core.states import Answer, OnConflict, State, worst
from delayq.core.views import JobInfo, JobRef, QueueStats
from delayq.drivers.broker import Buries, Depth, Findable, Shows, Waiting
from delayq.drivers.capabilities import refuse_verb
from delayq.drivers.connection import BatchStore, Connection, KeepsBatches, KeepsLocks, LockStore
from delayq.drivers.failed_store import FailedStore
from delayq.drivers.serving.backend import refuse_lost_failures
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.redis.given import ScheduleOptions, When

PAGE = 200
CLOCK_SLACK_MS = 100
_DURABLE = "say how safe an answer is (durability)"
WAITS = (State.SCHEDULED, State.READY)


def _as_it_is(spec: JobSpec, job: object) -> JobSpec:
    return spec


class Completing:
    """Adds to jobs that are sent by name what an application declares for these names.

    `declaring` has the jobs that declare options, by name; `complete` adds these options to a spec of that name.
    """

    def __init__(self) -> None:
        self.declaring: Mapping[str, Any] = {}
        self.complete: Callable[[JobSpec, Any], JobSpec] = _as_it_is

    def _spec(self, name: str, data: Any, options: ScheduleOptions) -> JobSpec:
        spec, job = JobSpec(name=name, data=data, **options), self.declaring.get(name)
        return spec if job is None else self.complete(spec, job)


class Sender(Completing):
    """Hands jobs in over a connection that keeps none itself, such as a failover."""

    def __init__(self, connection: Connection, options: Options) -> None:
        super().__init__()
        self.options = options
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def schedule(
        self,
        name: str,
        data: Any = None,
        *,
        on_conflict: str = "keep",
        durability: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> JobRef:
        """Hand one in."""
        refuse_verb(_DURABLE, durability is None, self._connection.name)
        return self._connection.schedule(self._spec(name, data, options), OnConflict(on_conflict))


class BrokerDesk(Completing):
    """Of one connection. Close it, or use it in a `with`."""

    def __init__(self, connection: BrokerConnection) -> None:
        super().__init__()
        self._connection = connection
        self._can = connection.capabilities
        self._failed: FailedStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def options(self) -> Options:
        """The defaults of this connection."""
        return self._connection.options

    def schedule(
        self,
        name: str,
        data: Any = None,
        *,
        on_conflict: str = "keep",
        durability: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> JobRef:
        """Push one job."""
        self._refuse(_DURABLE, durability is None)
        return self._connection.schedule(self._spec(name, data, options), OnConflict(on_conflict))

    def get(self, job_id: str, *, queue: str | None = None) -> JobInfo | None:
        """A job that waits, or has failed; on a backend with the capability `wait` also one that runs."""
        self._refuse("show a job", self._can.inspect)
        names = self._queues(queue)
        for name in names:
            if (found := self._find(name, job_id)) is not None:
                return self._info(found)
        failed = (self.failed().get(job_id, queue=name) for name in names)
        return next((info for info in failed if info is not None), None)

    def iter_jobs(self, state: State | str, *, queue: str | None = None) -> Iterator[JobInfo]:
        """The jobs in one state. Those that run cannot be listed, and finished ones are gone."""
        self._refuse("list its jobs", self._can.inspect)
        return self._in_state(self._queue(queue), State(state))

    def _in_state(self, name: str, wanted: State) -> Iterator[JobInfo]:
        if wanted is State.FAILED:
            yield from self.failed().iter_failed(name)
        if wanted in WAITS:
            yield from (info for info in map(self._info, self._iter(name)) if info.state is wanted)

    @property
    def where(self) -> str:
        """The place, for people."""
        return self._connection.backend.where

    def look(self) -> None:
        """Whether all is there that a worker needs. Raises `ConfigError`, `BackendError`."""
        self._connection.broker.ready([self.options.queue])
        refuse_lost_failures(self._connection.name, self._connection.backend)

    def queues(self) -> list[str]:
        """The queues that hold something, and those that failed jobs came from."""
        holding = self._connection.broker.queues()
        return holding if self._connection.backend.failed is None else sorted({*holding, *self.failed().queues()})

    def stats(self, queue: str | None = None) -> list[QueueStats]:
        """How long one queue is, or each."""
        self._refuse("tell how long its queues are", self._can.counts)
        return [self._stats(name) for name in ([self._queue(queue)] if queue else self.queues())]

    def busy(self, *, above: int, queue: str | None = None) -> list[QueueStats]:
        """Which queues have `above` jobs or more that are ready or run."""
        return [one for one in self.stats(queue) if one.load >= above]

    def control(self) -> Control:
        """No switch holds for the workers of a broker."""
        return Control()

    def cancel(
        self, job_id: str, *, queue: str | None = None, running: bool = False, durability: str | None = None
    ) -> Answer:
        """Remove a job that waits."""
        self._refuse(_DURABLE, durability is None)
        self._refuse("ask a running job to stop", not running)
        broker = self._findable("cancel a job", self._can.cancel)
        return worst((broker.cancel(name, job_id) for name in self._queues(queue)), key=lambda answer: answer)

    def reschedule(
        self, job_id: str, *, queue: str | None = None, durability: str | None = None, **given: Unpack[When]
    ) -> JobRef:
        """Give a waiting job another time."""
        self._refuse(_DURABLE, durability is None)
        broker, now_ms = self._findable("reschedule a job", self._can.reschedule), self._connection.broker.now_ms()
        due = when(JobSpec(name="reschedule", **given), now_ms)
        due_ms = now_ms + int(due) if due[0] == "+" else int(due)
        return self._moved(broker, job_id, queue, due_ms)

    def run_now(self, job_id: str, *, queue: str | None = None) -> JobRef:
        """Let a waiting job run at once."""
        broker, now_ms = self._findable("run a waiting job now", self._can.run_now), self._connection.broker.now_ms()
        ref = self._moved(broker, job_id, queue, now_ms)
        return structs.replace(ref, outcome=Answer.READY).asked_at(ref.home)

    def clear(self, queue: str | None = None) -> int:
        """Remove everything that waits in a queue; how many."""
        self._refuse("clear a queue", self._can.clear)
        return self._connection.broker.clear(self._queue(queue))

    def kick(self, queue: str | None = None, *, limit: int = PAGE) -> int:
        """Give back what the backend has laid aside because nobody could read it; how much."""
        broker = self._connection.broker
        self._refuse("give back what was buried: it buries nothing", isinstance(broker, Buries))
        assert isinstance(broker, Buries)
        return broker.kick(self._queue(queue), limit)

    def buried(self, queue: str) -> int:
        """How much of a queue is laid aside."""
        broker = self._connection.broker
        return broker.buried(queue) if isinstance(broker, Buries) else 0

    def all_buried(self) -> Mapping[str, int]:
        """How much is laid aside, of each queue where anything is."""
        broker = self._connection.broker
        return broker.all_buried() if isinstance(broker, Buries) else {}

    def failed(self) -> FailedDesk:
        """Its failed jobs."""
        make = self._connection.backend.failed
        self._refuse("tell of failed jobs", make is not None)
        if self._failed is None and make is not None:
            self._failed = make()
        assert self._failed is not None
        return FailedDesk(self._connection, self.options, self._failed, self._connection.broker.load, self.all_buried)

    @property
    def batches(self) -> BatchStore:
        """Its batches."""
        keeps = self._connection
        self._refuse("keep batches", isinstance(keeps, KeepsBatches))
        assert isinstance(keeps, KeepsBatches)
        return keeps.batches

    @property
    def locks(self) -> LockStore:
        """The unique keys that its jobs hold."""
        keeps = self._connection
        self._refuse("keep unique keys", isinstance(keeps, KeepsLocks))
        assert isinstance(keeps, KeepsLocks)
        return keeps.locks()

    def close(self) -> None:
        """Close what was opened."""
        self.close_failed()
        self._connection.close()

    def close_failed(self) -> None:
        """Close the store of failed jobs alone; the connection is its owner's."""
        if self._failed is not None:
            self._failed.close()
            self._failed = None

    def _refuse(self, verb: str, able: bool) -> None:
        refuse_verb(verb, able, self._connection.name)

    def _findable(self, verb: str, able: bool) -> Findable:
        broker = self._connection.broker
        self._refuse(verb, able and isinstance(broker, Findable))
        assert isinstance(broker, Findable)
        return broker

    def _queue(self, queue: str | None) -> str:
        return check_queue(queue or self.options.queue)

    def _queues(self, queue: str | None) -> list[str]:
        """The queues that may hold a job of `queue`: the one it is forwarded to, then itself."""
        name = self._queue(queue)
        return list(dict.fromkeys((self.options.sent_to(name), name)))

    def _iter(self, queue: str) -> Iterator[Waiting]:
        cursor = ""
        while True:
            page = self._connection.broker.page(queue, cursor=cursor, count=PAGE)
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def _find(self, queue: str, job_id: str) -> Waiting | None:
        broker = self._connection.broker
        if isinstance(broker, Shows):
            return broker.show(queue, job_id)
        if isinstance(broker, Findable):
            return broker.find(queue, job_id)
        return next((job for job in self._iter(queue) if job.id == job_id), None)

    def _info(self, job: Waiting) -> JobInfo:
        state = State.RESERVED if job.reserved else self._state(job.due_ms)
        try:
            envelope = envelopes.decode(job.envelope)
        except BadEnvelope:
            envelope = None
        return JobInfo(job.id, job.queue, state, job.envelope, envelope, due_ms=job.due_ms)

    def _moved(self, broker: Findable, job_id: str, queue: str | None, due_ms: int) -> JobRef:
        said = ((name, broker.reschedule(name, job_id, due_ms)) for name in self._queues(queue))
        name, answer = worst(said, key=lambda pair: pair[1])
        if answer is Answer.RUNNING:
            raise JobRunning(f"The job {job_id!r} runs.")
        if answer is Answer.UNKNOWN:
            raise JobNotFound(f"No job {job_id!r} waits in queue {self._queue(queue)!r}.")
        return JobRef(job_id, name, self._state(due_ms), due_ms, answer)

    def _state(self, due_ms: int) -> State:
        """Ready when it is due, as exactly as the backend keeps times: its clock here is an estimate."""
        now_ms = self._connection.broker.now_ms() + max(self._can.resolution_ms, CLOCK_SLACK_MS)
        return State.READY if due_ms <= now_ms else State.SCHEDULED

    def _stats(self, queue: str) -> QueueStats:
        broker, failed = self._connection.broker, 0
        depth, now_ms = broker.depth(queue), broker.now_ms()
        if self._connection.backend.failed is not None:
            failed = self.failed().count(queue)
        return _queue_stats(queue, depth, failed, now_ms, int(broker.lease_s(queue) * 1000))


def _queue_stats(queue: str, depth: Depth, failed: int, now_ms: int, lease_ms: int) -> QueueStats:
    return QueueStats(
        queue=queue,
        scheduled=depth.delayed or 0,
        ready=depth.ready,
        reserved=depth.reserved or 0,
        failed=failed,
        completed=0,
        paused_until_ms=None,
        overdue_oldest_ms=max(0, now_ms - depth.oldest_ms) if depth.oldest_ms else 0,
        lease_ms=lease_ms,
        mover_tick_ms=0,
        now_ms=now_ms,
        counters=MappingProxyType({}),
    )
