"""What a `JobRef` asks: the verbs of the client that answered with it, in the queue that has the job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from delayq.core.errors import ConfigError
from delayq.core.shards import queue_of
from delayq.core.spec import JobSpec
from delayq.core.states import Answer
from delayq.core.views import Delay, Instant, JobInfo, JobRef, RefHome, Timeout, ended
from delayq.core.when import duration_ms
from delayq.redis.connect import Connector
from delayq.redis.driving import adrive, drive
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.interception import Interceptor, active
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")


class AskedAgain(RefHome):
    """Waits for the end of a job by asking for it, again and again."""

    def wait(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """Blocking."""
        pauses = _pauses(timeout, ref.id)
        while not ended(info := self.get(ref)):
            time.sleep(next(pauses))
        return info

    async def await_(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """Awaited."""
        pauses = _pauses(timeout, ref.id)
        while not ended(info := await self.aget(ref)):  # noqa: ASYNC110 - the end comes elsewhere, not in this loop
            await asyncio.sleep(next(pauses))
        return info


class RedisHome(AskedAgain):
    """The verbs of one client over its connections, blocking and awaited."""

    def __init__(self, connector: Connector, verbs: Verbs, within: Sequence[Interceptor] = ()) -> None:
        self._connector = connector
        self._verbs = verbs
        self._by_hand = HandVerbs(verbs)
        self._within = within

    def one(self, ref: JobRef) -> JobRef:
        """The answer, which can be asked now."""
        return ref.asked_at(self.now())

    def all(self, refs: Iterable[JobRef]) -> None:
        """The same of many."""
        home = self.now()
        for ref in refs:
            ref.__dict__["home"] = home

    def now(self) -> RedisHome:
        """Return what answers for a job that is sent now; under a fake or a virtual clock, as long as that lasts."""
        if not active or self._within:
            return self
        return RedisHome(self._connector, self._verbs, tuple(active))

    def _run(self, ref: JobRef, flow: Flow[T]) -> T:
        return drive(self._asked(ref), flow)

    async def _arun(self, ref: JobRef, flow: Flow[T]) -> T:
        return await adrive(self._asked(ref), flow)

    def _asked(self, ref: JobRef) -> Connector:
        """Return the connector. Raises `ConfigError` for a job of a test's fake or clock that has ended."""
        if any(one not in active for one in self._within):
            raise ConfigError(
                f"The job {ref.id!r} was scheduled under a fake or a virtual clock that has ended; nothing was asked.",
                hint="Use this answer inside the block of the fake or the clock; DelayQ() asks for other jobs by id.",
            )
        return self._connector

    def cancel(self, ref: JobRef, running: bool) -> Answer:
        """Blocking."""
        return self._run(ref, self._by_hand.cancel(ref.id, queue_of(ref.queue), running=running))

    async def acancel(self, ref: JobRef, running: bool) -> Answer:
        """Awaited."""
        return await self._arun(ref, self._by_hand.cancel(ref.id, queue_of(ref.queue), running=running))

    def reschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """Blocking."""
        return self.one(self._run(ref, self._reschedule(ref, delay, at)))

    async def areschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """Awaited."""
        return self.one(await self._arun(ref, self._reschedule(ref, delay, at)))

    def check_results(self) -> None:
        """Redis keeps results."""

    def _reschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> Flow[JobRef]:
        spec = JobSpec(name="reschedule", delay=delay, at=at)
        return self._verbs.reschedule(ref.id, queue_of(ref.queue), spec)

    def run_now(self, ref: JobRef) -> JobRef:
        """Blocking."""
        return self.one(self._run(ref, self._verbs.run_now(ref.id, queue_of(ref.queue))))

    async def arun_now(self, ref: JobRef) -> JobRef:
        """Awaited."""
        return self.one(await self._arun(ref, self._verbs.run_now(ref.id, queue_of(ref.queue))))

    def get(self, ref: JobRef) -> JobInfo | None:
        """Blocking."""
        return self._run(ref, self._verbs.get(ref.id, queue_of(ref.queue)))

    async def aget(self, ref: JobRef) -> JobInfo | None:
        """Awaited."""
        return await self._arun(ref, self._verbs.get(ref.id, queue_of(ref.queue)))


def _pauses(timeout: Timeout, job_id: str) -> Iterator[float]:
    """How long to wait before each next look, in seconds. Raises `TimeoutError` when `timeout` is over."""
    end_s, pause_s = time.monotonic() + duration_ms(timeout) / 1000, 0.02
    while (left_s := end_s - time.monotonic()) > 0:
        yield min(pause_s, left_s)
        pause_s = min(pause_s * 1.5, 1.0)
    raise TimeoutError(f"The job {job_id!r} has not ended within {timeout}.")
