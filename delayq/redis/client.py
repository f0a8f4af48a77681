"""The blocking shell: every verb, run over the `commands` client. Holds no rules; see `verbs`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from msgspec import UNSET

from delayq.core.activity import Activity
from delayq.core.control import Control, WorkerOrder
from delayq.core.failed import FailedOptions
from delayq.core.failure_groups import FailureGroups
from delayq.core.job_types import JobTypes
from delayq.core.options import Options
from delayq.core.progress import Progress
from delayq.core.rate import Pace, parse_rate
from delayq.core.spec import Delay, JobSpec
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobInfo, JobRef, OrderedWorker, Page, QueueStats, QueueView, Retried, Upcoming, WorkerInfo
from delayq.redis import operations, resharding, whole
from delayq.redis.activity import SPAN, SPANS, activity
from delayq.redis.batches import Batches
from delayq.redis.calls.operate import Switch
from delayq.redis.connect import Connector
from delayq.redis.driving import drive
from delayq.redis.failed_verbs import GROUPED, FailedVerbs
from delayq.redis.given import QueueSettings, ScheduleOptions, When
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.interception import active
from delayq.redis.job_types import job_types
from delayq.redis.limit_desk import AuditDesk, LimitDesk
from delayq.redis.lock_desk import LockDesk
from delayq.redis.ref_home import RedisHome
from delayq.redis.verbs import Clock, Flow, Verbs, server_clock

T = TypeVar("T")


class Client:
    """All verbs of one delayq, blocking. Safe to share between threads and to use in a forked child.

    Every call ends within 5 seconds, with an answer or with one of `BackendUnavailable`, `BackendFull`,
    `OutcomeUnknown` (a reply was lost and the command could not be sent again).
    """

    def __init__(self, connector: Connector, options: Options, clock: Clock = server_clock) -> None:
        self.connector = connector
        self.verbs = Verbs(options, clock)
        self._by_hand = HandVerbs(self.verbs)
        self.failed_verbs = FailedVerbs(self.verbs)
        self.limits = LimitDesk(self)
        self.locks = LockDesk(self)
        self.audit_log = AuditDesk(self)
        self.batches = Batches(self.run, self.verbs)
        self._home = RedisHome(connector, self.verbs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.connector.endpoint)!r}, prefix={self.options.prefix!r})"

    @property
    def options(self) -> Options:
        """The defaults this client works with."""
        return self.verbs.options

    def run(self, flow: Flow[T]) -> T:
        """Run a verb: send what it yields, give it the answers, return what it returns."""
        return drive(self.connector, flow)

    def schedule(
        self,
        name: str,
        data: Any = None,
        *,
        on_conflict: str = "keep",
        durability: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> JobRef:
        """Schedule one job: `name`, its payload, and `delay="15m"` or `at=…` (neither = now).

        The id is yours or a new one. When it is taken, `on_conflict` says what happens: `keep` (default), `replace`
        (new payload and time), `postpone` (new time) or `error`. Returns a `JobRef` whose `outcome` tells which.
        `durability` (`memory`, `replicas:n`, `fsync`; None: the queue's own, else the setting) says how safe the job
        must be before this returns. Raises `InvalidInput` (nothing sent), `JobRunning`, `Conflict`, `NotConfirmed`
        (stored, and not that safe in time), `BackendError`.
        """
        spec = JobSpec(name=name, data=data, **options)
        ref = drive(self.connector, self.verbs.schedule(spec, OnConflict(on_conflict), durability))
        ref.__dict__["home"] = (
            self._home.now() if active else self._home
        )  # as `self._home.one`, a call less on the hottest path
        return ref

    def schedule_many(
        self, items: Iterable[JobSpec | Mapping[str, Any]], *, on_conflict: str = "keep", durability: str | None = None
    ) -> list[JobRef]:
        """Schedule many jobs, 500 a round trip; a `JobRef` for each, in order. Nothing is sent if one is invalid.

        The jobs are not one transaction: when the connection is lost on the way, those before it are stored.
        `NotConfirmed` comes when all are stored; its `done` has their references.
        """
        refs = self.run(self.verbs.schedule_many(items, OnConflict(on_conflict), durability))
        self._home.all(refs)
        return refs

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Schedule an envelope that is made already, byte for byte; only another `queue` is written into it.

        Raises `BadEnvelope`, and as `schedule`. An id that is taken is kept.
        """
        return self._home.one(self.run(self.verbs.push_raw(envelope, queue, delay)))

    def cancel(
        self, job_id: str, *, queue: str | None = None, running: bool = False, durability: str | None = None
    ) -> Answer:
        """Make sure a job does not run: `cancelled`, or why not (`running`, `finished`, `failed`, `unknown`).

        Without `queue` the default queue is asked. When that does not have the job and another queue has one with the
        id, nothing is done and `FoundElsewhere` names that queue. Naming the queue saves that search (two round trips).
        With `running=True` a job that runs is asked to stop; the answer stays `running`. `durability` as in `schedule`:
        raises `NotConfirmed` for a job that is cancelled, and not that safely.
        """
        return self.run(self._by_hand.cancel(job_id, queue, running=running, durability=durability))

    def archive(
        self, job_id: str, *, queue: str | None = None, reason: str = "", durability: str | None = None
    ) -> Answer:
        """Put a waiting job among the failed: `archived`, or why not (`running`, `finished`, `failed`, `unknown`).

        `reason` (at most 500 characters) becomes its error message. What follows a failure follows: the `catch` of its
        chain, a note to its batch. `retry` takes it up again. `durability` as in `cancel`.
        """
        return self.run(self._by_hand.archive(job_id, queue, reason=reason, durability=durability))

    def reschedule(
        self, job_id: str, *, queue: str | None = None, durability: str | None = None, **when: Unpack[When]
    ) -> JobRef:
        """Give a waiting job a new due time.

        Raises `JobNotFound` (`FoundElsewhere` as `cancel`), `JobRunning`, `JobHasFailed`, `JobFinished`, and
        `NotConfirmed` as `schedule`.
        """
        spec = JobSpec(name="reschedule", **when)
        return self._home.one(self.run(self.verbs.reschedule(job_id, queue, spec, durability)))

    def run_now(self, job_id: str, *, queue: str | None = None) -> JobRef:
        """Let a waiting job run at once (on a paused queue: when it is resumed). Raises as `reschedule`."""
        return self._home.one(self.run(self.verbs.run_now(job_id, queue)))

    def retry(self, job_id: str, *, queue: str | None = None, data: Any = UNSET) -> JobRef:
        """Give a failed job all its tries again; with `data` as its new payload (None is the payload null).

        Raises `JobNotFound` (`FoundElsewhere` as `cancel`), `JobNotFailed`, `PayloadLost`, `Conflict`, and
        `InvalidPayload` for data that cannot be sent and for the data of an encrypted job.
        """
        return self._home.one(self.run(self._by_hand.retry(job_id, queue, data)))

    def clone(
        self,
        job_id: str,
        *,
        queue: str | None = None,
        data: Any = UNSET,
        id: str | None = None,  # as in `schedule`
        delay: Delay | None = None,
    ) -> JobRef:
        """Schedule a copy of a job in any state, in its queue, under a new id or yours; with `data` as its payload.

        The copy keeps name, tries, backoff, timeout, retention, headers and tags. It is in no chain and no batch and
        has no unique key, deadline or `retry_until`. Raises `JobNotFound`, `Conflict` for an `id` that is taken, and
        `InvalidPayload` as `retry`.
        """
        return self._home.one(self.run(self._by_hand.clone(job_id, queue, data, id, delay)))

    def forget(self, job_ids: str | Iterable[str], *, queue: str | None = None) -> list[Answer]:
        """Drop failed or completed jobs: `forgotten`, `refused` (it waits or runs) or `unknown` for each.

        `job_ids` is one id or several; the answer is a list in both cases.
        Raises `FoundElsewhere` as `cancel`, when the others are done; its `done` has the answers for all ids.
        """
        return self.run(self.verbs.forget(job_ids, queue))

    def get(self, job_id: str, *, queue: str | None = None) -> JobInfo | None:
        """Everything known about one job; None when its id is not taken. Raises `FoundElsewhere` as `cancel`."""
        return self.run(self.verbs.get(job_id, queue))

    def list_jobs(self, state: State | str, *, queue: str | None = None, cursor: str = "", limit: int = 100) -> Page:
        """One page (≤ 500, ≤ 1 MB) of the jobs in one state, in their order."""
        return self.run(whole.list_jobs(self.verbs, State(state), queue, cursor, limit))

    def iter_jobs(self, state: State | str, *, queue: str | None = None) -> Iterator[JobInfo]:
        """All jobs in one state, page by page. Jobs that come or go meanwhile may be missed, none is shown twice."""
        cursor = ""
        while True:
            page = self.list_jobs(state, queue=queue, cursor=cursor, limit=500)
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def queues(self) -> list[str]:
        """The names of all known queues."""
        return self.run(self.verbs.queues())

    def stats(self, queue: str | None = None) -> list[QueueStats]:
        """How much is in which state, for one queue or all."""
        return self.run(whole.stats(self.verbs, queue))

    def busy(self, *, above: int, queue: str | None = None) -> list[QueueStats]:
        """Which queues have `above` jobs or more that are ready or run, of one or all; `QueueBusy` is told of each."""
        return self.run(operations.busy(self.verbs, above, queue))

    def workers(self) -> list[WorkerInfo]:
        """The workers that are alive: their names, their queues, what they say of themselves."""
        return self.run(operations.workers(self.verbs))

    def iter_failed(self, queue: str | None = None, **which: Unpack[FailedOptions]) -> Iterator[JobInfo]:
        """The failed jobs of one queue that are meant, in the order they failed in; see `FailedOptions`.

        Not what fails while you look. `get` tells the error of each. Raises `InvalidInput`.
        """
        choice = self.run(self.failed_verbs.choose(which, queue))
        cursor = ""
        while True:
            page = self.run(self.failed_verbs.page(choice, queue, cursor))
            yield from page.jobs
            cursor = page.cursor
            if not cursor:
                return

    def retry_failed(
        self, queue: str | None = None, *, rate: str | None = None, **which: Unpack[FailedOptions]
    ) -> Iterator[Retried]:
        """Give the failed jobs that are meant all their tries again, one by one, as you go through the answers.

        `rate` ('10/s') holds it back, so that what made them fail has time to breathe. Each keeps its id; one that
        cannot be retried says so in its answer. A job that fails again meanwhile is not met twice.
        """
        pace = Pace(parse_rate(rate) if rate is not None else None)
        for info in self.iter_failed(queue, **which):
            time.sleep(pace.wait_s(time.monotonic()))
            yield self.run(self.failed_verbs.retry(info.id, queue))

    def failed_groups(
        self, queue: str | None = None, *, looks: int = GROUPED, **which: Unpack[FailedOptions]
    ) -> FailureGroups:
        """Group the newest failed jobs that are meant by job name and error, the largest group first.

        At most `looks` jobs are looked at, in one queue or all; `FailureGroups.cursor` is '' when these were all. The
        `signature` of a group chooses its jobs in `iter_failed` and `retry_failed`. Raises `InvalidInput`.
        """
        return self.run(self.failed_verbs.groups(which, queue, looks))

    def progress(self, job_id: str, *, queue: str | None = None) -> Progress | None:
        """What a running job told last of how far it is; None when it told nothing, or does not run."""
        return self.run(operations.progress(self.verbs, job_id, queue))

    def recent_failures(self, queue: str | None = None, *, limit: int = 10) -> list[JobInfo]:
        """The jobs that failed last, the newest first, of one queue or all."""
        return self.run(operations.recent_failures(self.verbs, queue, limit))

    def control(self) -> Control:
        """What holds for all workers: whether everything is paused, maintenance, the last call to restart."""
        return self.run(operations.control(self.verbs))

    def pause_all(self, *, length: str | None = None, reason: str = "") -> Control:
        """No worker fetches from any queue, for a time or until `resume_all`. Pauses of single queues are apart."""
        return self.run(operations.turn_on(self.verbs, Switch.PAUSE, length, reason))

    def resume_all(self) -> Control:
        """Undo `pause_all`; queues that were paused by name stay paused."""
        return self.run(operations.turn_off(self.verbs, Switch.PAUSE))

    def start_maintenance(self, *, length: str | None = None, reason: str = "") -> Control:
        """No worker fetches, but for those started with `--force`; for a time or until `end_maintenance`."""
        return self.run(operations.turn_on(self.verbs, Switch.MAINTENANCE, length, reason))

    def end_maintenance(self) -> Control:
        """Workers fetch again."""
        return self.run(operations.turn_off(self.verbs, Switch.MAINTENANCE))

    def restart_workers(self) -> Control:
        """All workers started until now leave after their job; what keeps them running starts them again."""
        return self.run(operations.restart_workers(self.verbs))

    def order_worker(self, name: str, order: WorkerOrder | str) -> OrderedWorker:
        """Tell one live worker what to do: 'quiet' (end its jobs, take no new ones), 'resume', 'stop' or 'restart'.

        `name` is the worker's, or that of one of its processes. Stopped and restarted workers end their jobs within
        their grace and leave with exit code 0; restarting needs a process manager that starts them again. A worker
        hears of it at once, or within seconds when the hint is lost. Raises `WorkerNotFound`, `InvalidInput`.
        """
        return self.run(operations.order_worker(self.verbs, name, order))

    def prune_failed(self, queue: str | None = None, *, older: str) -> int:
        """Forget the jobs that failed longer ago than `older` ('30d'; '0s' = all of them). Returns how many."""
        return self.run(whole.prune_failed(self.verbs, queue, older))

    def upcoming(self, queue: str | None = None, *, span: str = "1m", spans: int = 60) -> Upcoming:
        """How many jobs fall due in each of `spans` spans (≤ 500) from now on."""
        return self.run(whole.upcoming(self.verbs, queue, span, spans))

    def activity(
        self, queue: str | None = None, *, span: str = SPAN, spans: int = SPANS, days: int | None = None
    ) -> Activity:
        """What happened in the last `spans` spans of whole minutes (a day at most), on one queue or on all together.

        Counts, and how late and how long attempts were; the last span has begun. With `days` (1 to 90) each span is a
        day of UTC instead. Raises `InvalidInput`.
        """
        return self.run(activity(self.verbs, queue, span, spans, days))

    def job_types(self, queue: str | None = None, *, hours: int | None = None, days: int | None = None) -> JobTypes:
        """Return how the jobs of each name ran on one queue, or on all: attempts by outcome, and run times.

        The window is the last `hours` whole hours (1 to 24, default 24) and the present one, or the last `days` whole
        days of UTC (1 to 90) and today. Workers report every 2 s; a job that something else than a delayq worker
        settled is not counted. Raises `InvalidInput`.
        """
        return self.run(job_types(self.verbs, queue, hours, days))

    def pause(self, queue: str | None = None, *, length: str | None = None) -> int:
        """Stop promotion and fetching, for a time or until `resume`; returns until when (epoch ms, 0 = until then)."""
        return self.run(operations.pause(self.verbs, queue, length))

    def resume(self, queue: str | None = None) -> None:
        """Undo a pause."""
        self.run(operations.resume(self.verbs, queue))

    def queue_set(self, queue: str | None = None, **kept: Unpack[QueueSettings]) -> QueueView:
        """Set what a queue keeps for itself (`lease`, `durability`, `shards`); returns what is in force.

        Raises `InvalidInput` unless `lease` is 100ms to 1d, and `durability` as in `schedule`; nothing was sent then.
        Other clients follow a new durability within a minute, workers within seconds. `shards` (1 to 256) spreads it
        over so many, while it is in use; jobs that are there stay where they are.
        """
        return self.run(resharding.queue_set(self.verbs, queue, kept))

    def queue_show(self, queue: str | None = None) -> QueueView:
        """What a queue keeps for itself, and how much lies in each of its shards."""
        return self.run(whole.show(self.verbs, queue))

    def queue_durability(self, queue: str | None = None) -> str:
        """What calls on this queue wait for that do not say themselves: its own durability, else the setting."""
        return self.run(whole.durability(self.verbs, queue))

    def clear(self, queue: str | None = None) -> int:
        """Drop everything scheduled or ready in a queue; what runs is left alone. Returns how many jobs."""
        return self.run(whole.clear(self.verbs, queue))

    def queue_remove(self, queue: str) -> None:
        """Forget a queue: its name, settings and counters. A job that is scheduled later makes it anew.

        Raises `QueueNotFound`, and `QueueInUse` while it holds a job in any state or a live worker serves it.
        """
        self.run(operations.remove_queue(self.verbs, queue))

    def close(self) -> None:
        """Close the connections; the client may be used again."""
        self.connector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
