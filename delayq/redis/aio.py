"""The asyncio shell: every verb, awaited. The twin of `client`; the verbs themselves stand in `verbs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from delayq.core.activity import Activity
from delayq.core.control import Control
from delayq.core.failed import FailedOptions
from delayq.core.options import Options
from delayq.core.progress import Progress
from delayq.core.rate import Pace, parse_rate
from delayq.core.spec import Delay, JobSpec
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobInfo, JobRef, Page, QueueStats, QueueView, Retried, Upcoming, WorkerInfo
from delayq.redis import operations, resharding, whole
from delayq.redis.activity import SPAN, SPANS, activity
from delayq.redis.batches import AsyncBatches
from delayq.redis.calls.operate import Switch
from delayq.redis.connect import Connector
from delayq.redis.driving import adrive
from delayq.redis.failed_verbs import FailedVerbs
from delayq.redis.given import QueueSettings, ScheduleOptions, When
from delayq.redis.hand_verbs import HandVerbs
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
        """As `Client.schedule`."""
        spec = JobSpec(name=name, data=data, **options)
        return self._home.one(await self.run(self.verbs.schedule(spec, OnConflict(on_conflict), durability)))

    async def schedule_many(
        self, items: Iterable[JobSpec | Mapping[str, Any]], *, on_conflict: str = "keep", durability: str | None = None
    ) -> list[JobRef]:
        """As `Client.schedule_many`."""
        refs = await self.run(self.verbs.schedule_many(items, OnConflict(on_conflict), durability))
        self._home.all(refs)
        return refs

    async def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `Client.push_raw`."""
        return self._home.one(await self.run(self.verbs.push_raw(envelope, queue, delay)))

    async def cancel(
        self, job_id: str, *, queue: str | None = None, running: bool = False, durability: str | None = None
    ) -> Answer:
        """As `Client.cancel`."""
        return await self.run(self._by_hand.cancel(job_id, queue, running=running, durability=durability))

    async def archive(
        self, job_id: str, *, queue: str | None = None, reason: str = "", durability: str | None = None
    ) -> Answer:
        """As `Client.archive`."""
        return await self.run(self._by_hand.archive(job_id, queue, reason=reason, durability=durability))

    async def reschedule(
        self, job_id: str, *, queue: str | None = None, durability: str | None = None, **when: Unpack[When]
    ) -> JobRef:
        """As `Client.reschedule`."""
        spec = JobSpec(name="reschedule", **when)
        return self._home.one(await self.run(self.verbs.reschedule(job_id, queue, spec, durability)))

    async def run_now(self, job_id: str, *, queue: str | None = None) -> JobRef:
        """As `Client.run_now`."""
        return self._home.one(await self.run(self.verbs.run_now(job_id, queue)))

    async def retry(self, job_id: str, *, queue: str | None = None) -> JobRef:
        """As `Client.retry`."""
        return self._home.one(await self.run(self._by_hand.retry(job_id, queue)))

    async def forget(self, job_ids: str | Sequence[str], *, queue: str | None = None) -> list[Answer]:
        """As `Client.forget`."""
        return await self.run(self.verbs.forget(job_ids, queue))

    async def get(self, job_id: str, *, queue: str | None = None) -> JobInfo | None:
        """As `Client.get`."""
        return await self.run(self.verbs.get(job_id, queue))

    async def list_jobs(
        self, state: State | str, *, queue: str | None = None, cursor: str = "", limit: int = 100
    ) -> Page:
        """As `Client.list_jobs`."""
        return await self.run(whole.list_jobs(self.verbs, State(state), queue, cursor, limit))

    async def iter_jobs(self, state: State | str, *, queue: str | None = None) -> AsyncIterator[JobInfo]:
        """As `Client.iter_jobs`."""
        cursor = ""
        while True:
            page = await self.list_jobs(state, queue=queue, cursor=cursor, limit=500)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if not cursor:
                return

    async def queues(self) -> list[str]:
        """As `Client.queues`."""
        return await self.run(self.verbs.queues())

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """As `Client.stats`."""
        return await self.run(whole.stats(self.verbs, queue))

    async def busy(self, *, above: int, queue: str | None = None) -> list[QueueStats]:
        """As `Client.busy`."""
        return await self.run(operations.busy(self.verbs, above, queue))

    async def workers(self) -> list[WorkerInfo]:
        """As `Client.workers`."""
        return await self.run(operations.workers(self.verbs))

    async def iter_failed(self, queue: str | None = None, **which: Unpack[FailedOptions]) -> AsyncIterator[JobInfo]:
        """As `Client.iter_failed`."""
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
        """As `Client.retry_failed`."""
        pace = Pace(parse_rate(rate) if rate is not None else None)
        async for info in self.iter_failed(queue, **which):
            await asyncio.sleep(pace.wait_s(time.monotonic()))
            yield await self.run(self.failed_verbs.retry(info.id, queue))

    async def progress(self, job_id: str, *, queue: str | None = None) -> Progress | None:
        """As `Client.progress`."""
        return await self.run(operations.progress(self.verbs, job_id, queue))

    async def recent_failures(self, queue: str | None = None, *, limit: int = 10) -> list[JobInfo]:
        """As `Client.recent_failures`."""
        return await self.run(operations.recent_failures(self.verbs, queue, limit))

    async def control(self) -> Control:
        """As `Client.control`."""
        return await self.run(operations.control(self.verbs))

    async def pause_all(self, *, length: str | None = None) -> Control:
        """As `Client.pause_all`."""
        return await self.run(operations.turn_on(self.verbs, Switch.PAUSE, length))

    async def resume_all(self) -> Control:
        """As `Client.resume_all`."""
        return await self.run(operations.turn_off(self.verbs, Switch.PAUSE))

    async def start_maintenance(self, *, length: str | None = None, reason: str = "") -> Control:
        """As `Client.start_maintenance`."""
        return await self.run(operations.turn_on(self.verbs, Switch.MAINTENANCE, length, reason))

    async def end_maintenance(self) -> Control:
        """As `Client.end_maintenance`."""
        return await self.run(operations.turn_off(self.verbs, Switch.MAINTENANCE))

    async def restart_workers(self) -> Control:
        """As `Client.restart_workers`."""
        return await self.run(operations.restart_workers(self.verbs))

    async def prune_failed(self, queue: str | None = None, *, older: str) -> int:
        """As `Client.prune_failed`."""
        return await self.run(whole.prune_failed(self.verbs, queue, older))

    async def upcoming(self, queue: str | None = None, *, span: str = "1m", spans: int = 60) -> Upcoming:
        """As `Client.upcoming`."""
        return await self.run(whole.upcoming(self.verbs, queue, span, spans))

    async def activity(
        self, queue: str | None = None, *, span: str = SPAN, spans: int = SPANS, days: int | None = None
    ) -> Activity:
        """As `Client.activity`."""
        return await self.run(activity(self.verbs, queue, span, spans, days))

    async def pause(self, queue: str | None = None, *, length: str | None = None) -> int:
        """As `Client.pause`."""
        return await self.run(operations.pause(self.verbs, queue, length))

    async def resume(self, queue: str | None = None) -> None:
        """As `Client.resume`."""
        await self.run(operations.resume(self.verbs, queue))

    async def queue_set(self, queue: str | None = None, **kept: Unpack[QueueSettings]) -> QueueView:
        """As `Client.queue_set`."""
        return await self.run(resharding.queue_set(self.verbs, queue, kept))

    async def queue_show(self, queue: str | None = None) -> QueueView:
        """As `Client.queue_show`."""
        return await self.run(whole.show(self.verbs, queue))

    async def queue_durability(self, queue: str | None = None) -> str:
        """As `Client.queue_durability`."""
        return await self.run(whole.durability(self.verbs, queue))

    async def clear(self, queue: str | None = None) -> int:
        """As `Client.clear`."""
        return await self.run(whole.clear(self.verbs, queue))

    async def queue_remove(self, queue: str) -> None:
        """As `Client.queue_remove`."""
        await self.run(operations.remove_queue(self.verbs, queue))

    async def close(self) -> None:
        """As `Client.close`."""
        await self.connector.aclose()
        self.connector.close()  # connections of the threads that sent many reads at once

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
