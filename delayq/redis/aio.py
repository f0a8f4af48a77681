"""The asyncio shell: every verb, awaited. The twin of `client`; the verbs themselves stand in `verbs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
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
from delayq.redis.batches import AsyncBatches
from delayq.redis.calls.operate import Switch
from delayq.redis.connect import Connector
from delayq.redis.driving import adrive
from delayq.redis.failed_verbs import GROUPED, FailedVerbs
from delayq.redis.given import QueueSettings, ScheduleOptions, When
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.job_types import job_types
from delayq.redis.limit_desk import AsyncAuditDesk, AsyncLimitDesk
from delayq.redis.lock_desk import AsyncLockDesk
from delayq.redis.ref_home import RedisHome
from delayq.redis.verbs import Clock, Flow, Verbs, server_clock

T = TypeVar("T")


class AsyncClient:
    """All verbs of one delayq, awaited; the same names as `Client`. Safe to share between tasks.

    Every call ends within 5 seconds, with an answer or with one of `BackendUnavailable`, `BackendFull`,
    `OutcomeUnknown` (a reply was lost and the command could not be sent again).
    """

    def __init__(self, connector: Connector, options: Options, clock: Clock = server_clock) -> None:
        self.connector = connector
        self.verbs = Verbs(options, clock)
        self._by_hand = HandVerbs(self.verbs)
        self.failed_verbs = FailedVerbs(self.verbs)
        self.limits = AsyncLimitDesk(self)
        self.locks = AsyncLockDesk(self)
        self.audit_log = AsyncAuditDesk(self)
        self.batches = AsyncBatches(self.run, self.verbs)
        self._home = RedisHome(connector, self.verbs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.connector.endpoint)!r}, prefix={self.options.prefix!r})"

    @property
    def options(self) -> Options:
        """The defaults this client works with."""
        return self.verbs.options

    async def run(self, flow: Flow[T]) -> T:
        """Run a verb, awaited: send what it yields, give it the answers, return what it returns."""
        return await adrive(self.connector, flow)

    async def schedule(
        self,
        name: str,
        data: Any = None,
        *,
        on_conflict: str = "keep",
        durability: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> JobRef:
        """Schedule one job: `name`, its payload, and `delay="15m"` or `at=...` (neither: it runs now).

        The id is yours (`id=`) or a new one. When it is taken, `on_conflict` decides: `keep` (default), `replace` (new
        payload and time), `postpone` (new time) or `error`. Returns a `JobRef`; its `outcome` says what was done.
        `durability` (`memory`, `replicas:n`, `fsync`; None: the queue's own, else the setting) is how safe the job must
        be before this returns. Raises `InvalidInput` (nothing was sent), `JobRunning`, `Conflict`, `NotConfirmed` (the
        job is stored, but not that safely in time), `BackendError`.
        """
        spec = JobSpec(name=name, data=data, **options)
        return self._home.one(await self.run(self.verbs.schedule(spec, OnConflict(on_conflict), durability)))

    async def schedule_many(
        self, items: Iterable[JobSpec | Mapping[str, Any]], *, on_conflict: str = "keep", durability: str | None = None
    ) -> list[JobRef]:
        """Schedule many jobs, 500 in a round trip. Returns a `JobRef` for each, in order.

        An item is a `JobSpec` or a mapping of its fields. Nothing is sent if one is invalid. The jobs are not one
        transaction: when the connection is lost, the jobs sent before that are stored. Raises as `schedule`;
        `NotConfirmed` comes when all are stored, and its `done` has their references.
        """
        refs = await self.run(self.verbs.schedule_many(items, OnConflict(on_conflict), durability))
        self._home.all(refs)
        return refs

    async def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Schedule an envelope that is already made, byte for byte; only another `queue` is written into it.

        An id that is taken is kept. Returns a `JobRef`. Raises `BadEnvelope`, and as `schedule`.
        """
        return self._home.one(await self.run(self.verbs.push_raw(envelope, queue, delay)))

    async def cancel(
        self, job_id: str, *, queue: str | None = None, running: bool = False, durability: str | None = None
    ) -> Answer:
        """Make sure a job does not run. Returns `cancelled`, or why not: `running`, `finished`, `failed`, `unknown`.

        Without `queue` the default queue is asked. When that does not have the job and another queue has one with this
        id, nothing is done and `FoundElsewhere` names that queue; this search takes two round trips. With
        `running=True` a job that runs is asked to stop, and the answer stays `running`. `durability` as in `schedule`:
        `NotConfirmed` is raised for a job that is cancelled, but not that safely.
        """
        return await self.run(self._by_hand.cancel(job_id, queue, running=running, durability=durability))

    async def archive(
        self, job_id: str, *, queue: str | None = None, reason: str = "", durability: str | None = None
    ) -> Answer:
        """Move a waiting job to the failed. Returns `archived`, or why not: `running`, `finished`, `failed`, `unknown`.

        `reason` (at most 500 characters) becomes its error message. What follows a failure follows: the `catch` of its
        chain, a note to its batch. `retry` takes the job up again. `durability` as in `cancel`.
        """
        return await self.run(self._by_hand.archive(job_id, queue, reason=reason, durability=durability))

    async def reschedule(
        self, job_id: str, *, queue: str | None = None, durability: str | None = None, **when: Unpack[When]
    ) -> JobRef:
        """Give a waiting job a new due time: `delay="15m"` or `at=...`. Returns its `JobRef`.

        Raises `JobNotFound` (`FoundElsewhere` as `cancel`), `JobRunning`, `JobHasFailed`, `JobFinished`, and
        `NotConfirmed` as `schedule`.
        """
        spec = JobSpec(name="reschedule", **when)
        return self._home.one(await self.run(self.verbs.reschedule(job_id, queue, spec, durability)))

    async def run_now(self, job_id: str, *, queue: str | None = None) -> JobRef:
        """Let a waiting job run at once; on a paused queue it runs after the resume. Raises as `reschedule`."""
        return self._home.one(await self.run(self.verbs.run_now(job_id, queue)))

    async def retry(self, job_id: str, *, queue: str | None = None, data: Any = UNSET) -> JobRef:
        """Give a failed job all its tries again; with `data` as its new payload (None is the payload null).

        Returns its `JobRef`. Raises `JobNotFound` (`FoundElsewhere` as `cancel`), `JobNotFailed`, `PayloadLost`,
        `Conflict`, and `InvalidPayload` for data that cannot be sent and for the data of an encrypted job.
        """
        return self._home.one(await self.run(self._by_hand.retry(job_id, queue, data)))

    async def clone(
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
        return self._home.one(await self.run(self._by_hand.clone(job_id, queue, data, id, delay)))

    async def forget(self, job_ids: str | Iterable[str], *, queue: str | None = None) -> list[Answer]:
        """Drop failed or completed jobs. Returns `forgotten`, `refused` (it waits or runs) or `unknown` for each id.

        `job_ids` is one id or several; the answer is a list in both cases. Raises `FoundElsewhere` as `cancel` after
        the other ids are done; its `done` has the answers for all ids.
        """
        return await self.run(self.verbs.forget(job_ids, queue))

    async def get(self, job_id: str, *, queue: str | None = None) -> JobInfo | None:
        """Return everything known about one job; None when no job has the id. Raises `FoundElsewhere` as `cancel`."""
        return await self.run(self.verbs.get(job_id, queue))

    async def list_jobs(
        self, state: State | str, *, queue: str | None = None, cursor: str = "", limit: int = 100
    ) -> Page:
        """Return one page of the jobs in one state, in their order: at most `limit` (up to 500) and 1 MB.

        `cursor` is that of the page before; the `cursor` of the last page is empty.
        """
        return await self.run(whole.list_jobs(self.verbs, State(state), queue, cursor, limit))

    async def iter_jobs(self, state: State | str, *, queue: str | None = None) -> AsyncIterator[JobInfo]:
        """Iterate over all jobs in one state, page by page (`async for`).

        Jobs that come or go meanwhile may be missed; no job is given twice.
        """
        cursor = ""
        while True:
            page = await self.list_jobs(state, queue=queue, cursor=cursor, limit=500)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if not cursor:
                return

    async def queues(self) -> list[str]:
        """Return the names of all known queues, sorted."""
        return await self.run(self.verbs.queues())

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """Return how many jobs are in which state, for one queue or for all."""
        return await self.run(whole.stats(self.verbs, queue))

    async def busy(self, *, above: int, queue: str | None = None) -> list[QueueStats]:
        """Return the queues with `above` or more jobs that are ready or running; tells `QueueBusy` of each."""
        return await self.run(operations.busy(self.verbs, above, queue))

    async def workers(self) -> list[WorkerInfo]:
        """Return the live workers: their names, their queues and what they report of themselves."""
        return await self.run(operations.workers(self.verbs))

    async def iter_failed(self, queue: str | None = None, **which: Unpack[FailedOptions]) -> AsyncIterator[JobInfo]:
        """Iterate over the failed jobs of one queue, in the order in which they failed (`async for`).

        `which` narrows them by name and time; see `FailedOptions`. Jobs that fail during the iteration are left out.
        `get` gives the error of each. Raises `InvalidInput`.
        """
        choice = await self.run(self.failed_verbs.choose(which, queue))
        cursor = ""
        while True:
            page = await self.run(self.failed_verbs.page(choice, queue, cursor))
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if not cursor:
                return

    async def retry_failed(
        self, queue: str | None = None, *, rate: str | None = None, **which: Unpack[FailedOptions]
    ) -> AsyncIterator[Retried]:
        """Give failed jobs of one queue all their tries again, one with each step of the iteration (`async for`).

        `which` narrows them as in `iter_failed`. `rate` ("10/s") is the most that are retried in that time. Each job
        keeps its id; the answer of a job that cannot be retried has the error. A job that fails again meanwhile is not
        retried a second time.
        """
        pace = Pace(parse_rate(rate) if rate is not None else None)
        async for info in self.iter_failed(queue, **which):
            await asyncio.sleep(pace.wait_s(time.monotonic()))
            yield await self.run(self.failed_verbs.retry(info.id, queue))

    async def failed_groups(
        self, queue: str | None = None, *, looks: int = GROUPED, **which: Unpack[FailedOptions]
    ) -> FailureGroups:
        """Group the newest failed jobs that are meant by job name and error, the largest group first.

        At most `looks` jobs are looked at, in one queue or all; `FailureGroups.cursor` is '' when these were all. The
        `signature` of a group chooses its jobs in `iter_failed` and `retry_failed`. Raises `InvalidInput`.
        """
        return await self.run(self.failed_verbs.groups(which, queue, looks))

    async def progress(self, job_id: str, *, queue: str | None = None) -> Progress | None:
        """Return the progress that a running job reported last; None when it reported none or does not run."""
        return await self.run(operations.progress(self.verbs, job_id, queue))

    async def recent_failures(self, queue: str | None = None, *, limit: int = 10) -> list[JobInfo]:
        """Return the jobs that failed last, newest first, of one queue or of all; at most `limit`."""
        return await self.run(operations.recent_failures(self.verbs, queue, limit))

    async def control(self) -> Control:
        """Return what holds for all workers: a pause of everything, maintenance, the last call to restart."""
        return await self.run(operations.control(self.verbs))

    async def pause_all(self, *, length: str | None = None, reason: str = "") -> Control:
        """Stop all workers from fetching, for `length` ("10m") or until `resume_all`. Pauses of queues stay."""
        return await self.run(operations.turn_on(self.verbs, Switch.PAUSE, length, reason))

    async def resume_all(self) -> Control:
        """End `pause_all`; queues that were paused by name stay paused."""
        return await self.run(operations.turn_off(self.verbs, Switch.PAUSE))

    async def start_maintenance(self, *, length: str | None = None, reason: str = "") -> Control:
        """Stop all workers from fetching except those started with `--force`, for `length` or until `end_maintenance`.

        `reason` is shown to people who ask.
        """
        return await self.run(operations.turn_on(self.verbs, Switch.MAINTENANCE, length, reason))

    async def end_maintenance(self) -> Control:
        """End maintenance: workers fetch again."""
        return await self.run(operations.turn_off(self.verbs, Switch.MAINTENANCE))

    async def restart_workers(self) -> Control:
        """Ask all workers that run now to leave after their job; systemd, Docker or the like starts them again."""
        return await self.run(operations.restart_workers(self.verbs))

    async def order_worker(self, name: str, order: WorkerOrder | str) -> OrderedWorker:
        """Tell one live worker what to do: 'quiet' (end its jobs, take no new ones), 'resume', 'stop' or 'restart'.

        `name` is the worker's, or that of one of its processes. Stopped and restarted workers end their jobs within
        their grace and leave with exit code 0; restarting needs a process manager that starts them again. A worker
        hears of it at once, or within seconds when the hint is lost. Raises `WorkerNotFound`, `InvalidInput`.
        """
        return await self.run(operations.order_worker(self.verbs, name, order))

    async def prune_failed(self, queue: str | None = None, *, older: str) -> int:
        """Forget the jobs of a queue that failed longer ago than `older` ("30d"; "0s": all). Returns how many."""
        return await self.run(whole.prune_failed(self.verbs, queue, older))

    async def upcoming(self, queue: str | None = None, *, span: str = "1m", spans: int = 60) -> Upcoming:
        """Return how many jobs are due in each of `spans` spans (at most 500), each `span` long, from now on."""
        return await self.run(whole.upcoming(self.verbs, queue, span, spans))

    async def activity(
        self, queue: str | None = None, *, span: str = SPAN, spans: int = SPANS, days: int | None = None
    ) -> Activity:
        """What happened in the last `spans` spans of whole minutes (a day at most), on one queue or on all together.

        Counts, and how late and how long attempts were; the last span has begun. With `days` (1 to 90) each span is a
        day of UTC instead. Raises `InvalidInput`.
        """
        return await self.run(activity(self.verbs, queue, span, spans, days))

    async def job_types(
        self, queue: str | None = None, *, hours: int | None = None, days: int | None = None
    ) -> JobTypes:
        """Return how the jobs of each name ran on one queue, or on all: attempts by outcome, and run times.

        The window is the last `hours` whole hours (1 to 24, default 24) and the present one, or the last `days` whole
        days of UTC (1 to 90) and today. Workers report every 2 s; a job that something else than a delayq worker
        settled is not counted. Raises `InvalidInput`.
        """
        return await self.run(job_types(self.verbs, queue, hours, days))

    async def pause(self, queue: str | None = None, *, length: str | None = None) -> int:
        """Stop promotion and fetching of a queue, for `length` ("10m") or until `resume`.

        Returns when the pause ends (epoch ms); 0: at `resume`.
        """
        return await self.run(operations.pause(self.verbs, queue, length))

    async def resume(self, queue: str | None = None) -> None:
        """End the pause of a queue."""
        await self.run(operations.resume(self.verbs, queue))

    async def queue_set(self, queue: str | None = None, **kept: Unpack[QueueSettings]) -> QueueView:
        """Set what a queue keeps for itself (`lease`, `durability`, `shards`). Returns what is in force.

        `lease` is 100ms to 1d, `durability` as in `schedule`, `shards` 1 to 256. Other clients follow a new durability
        within a minute, workers within seconds; new shards are used while the queue is in use, and jobs that are there
        stay in their shard. Raises `InvalidInput`; nothing was sent then.
        """
        return await self.run(resharding.queue_set(self.verbs, queue, kept))

    async def queue_show(self, queue: str | None = None) -> QueueView:
        """Return what a queue keeps for itself, and how many jobs are in each of its shards."""
        return await self.run(whole.show(self.verbs, queue))

    async def queue_durability(self, queue: str | None = None) -> str:
        """Return what calls on this queue wait for by default: the queue's own durability, else the setting."""
        return await self.run(whole.durability(self.verbs, queue))

    async def clear(self, queue: str | None = None) -> int:
        """Drop everything scheduled or ready in a queue; what runs is left alone. Returns how many jobs."""
        return await self.run(whole.clear(self.verbs, queue))

    async def queue_remove(self, queue: str) -> None:
        """Forget a queue: its name, settings and counters. A job that is scheduled later makes it anew.

        Raises `QueueNotFound`, and `QueueInUse` while it holds a job in any state or a live worker serves it.
        """
        await self.run(operations.remove_queue(self.verbs, queue))

    async def close(self) -> None:
        """Close the connections; the client may be used again."""
        await self.connector.aclose()
        self.connector.close()  # connections of the threads that sent many reads at once

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
