"""The producers' side of any broker: checks a job, refuses what the backend cannot do, and pushes it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace

from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef, RefHome
from delayq.drivers.broker import Broker, Findable, Item
from delayq.drivers.capabilities import Capabilities, refuse_job, refuse_spec
from delayq.drivers.serving.backend import Backend
from delayq.redis.calls.refusals import refusal


class BrokerConnection:
    """A `Connection` over a broker, made when the first job is sent. Awaited calls use a thread."""

    def __init__(self, name: str, backend: Backend, options: Options) -> None:
        self.name = name
        self.backend = backend
        # A default retention is for those who can keep a result; one that a job asks for is refused.
        self.options = options if backend.capabilities.retention else replace(options, retention_ms=0)
        self.home: RefHome | None = None
        """What its answers ask later; the manager sets it."""
        self._broker: Broker | None = None
        self._process = 0
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self.backend.capabilities

    @property
    def broker(self) -> Broker:
        """This process's way to the backend, for all that is not sending."""
        with self._lock:
            if self._broker is None or self._process != os.getpid():  # a parent's connections are not ours
                self._broker, self._process = self.backend.make(), os.getpid()
            return self._broker

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Push one. Raises `Conflict`, `JobRunning` where that is the answer."""
        return accepted(spec, self.schedule_many([spec], on_conflict)[0])

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """Push them in one call, once all are checked."""
        items = self.checked(specs, on_conflict)
        return self.at_home(self.broker.push(items, on_conflict)) if items else []

    def at_home(self, refs: list[JobRef]) -> list[JobRef]:
        """Answers that can be asked about their jobs."""
        for ref in refs:
            ref.asked_at(self.home)
        return refs

    def checked(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[Item]:
        """What a broker is given for these jobs. Everything wrong with them is found here."""
        for spec in specs:
            refuse_spec(spec, on_conflict, self.capabilities, self.name)
        if not specs:
            return []
        now_ms = self.broker.now_ms()
        jobs = (prepare(spec, self.options, now_ms, on_conflict) for spec in specs)
        return [self._item(self._where_it_waits(job), now_ms) for job in jobs]

    def refuse(self, spec: JobSpec) -> None:
        """As `schedule` would: what a link asks for (a limit, say) is not all written in the envelope it travels in."""
        refuse_spec(spec, OnConflict.KEEP, self.capabilities, self.name)

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Push an envelope as it is."""
        broker = self.broker
        job = self._where_it_waits(prepare_raw(envelope, self.options, queue, delay))
        return self.at_home(broker.push([self._item(job, broker.now_ms())], OnConflict.KEEP))[0]

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        return await asyncio.to_thread(self.schedule, spec, on_conflict)

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        return await asyncio.to_thread(self.schedule_many, specs, on_conflict)

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        return await asyncio.to_thread(lambda: self.push_raw(envelope, queue=queue, delay=delay))

    def close(self) -> None:
        """Close the broker; another is made when the next job is sent."""
        with self._lock:
            broker, self._broker = self._broker, None
        if broker is not None and self._process == os.getpid():
            broker.close()

    async def aclose(self) -> None:
        """As `close`."""
        await asyncio.to_thread(self.close)

    def _where_it_waits(self, job: Prepared) -> Prepared:
        """A job for the queue that is forwarded, if one with its id waits there still."""
        if not (job.forwarded_from and job.own_id and isinstance(self.broker, Findable)):
            return job
        waits = self.broker.find(job.forwarded_from, job.id) is not None
        return job.in_queue(job.forwarded_from) if waits else job

    def _item(self, job: Prepared, now_ms: int) -> Item:
        item = item_of(job, now_ms)
        refuse_job(job.envelope, item.delay_ms, self.capabilities, self.name)
        return item


def accepted(spec: JobSpec, ref: JobRef) -> JobRef:
    """What became of one job that was pushed by itself; raises when that is a refusal."""
    mine = ref.id if spec.id is None else spec.id
    error = None
    if isinstance(ref.outcome, Answer):
        error = refusal(ref.outcome, mine, ref.queue, owner="" if ref.id == mine else ref.id)
    if error is not None:
        raise error
    return ref


def item_of(job: Prepared, now_ms: int) -> Item:
    """A prepared job as brokers take it."""
    delay_ms = int(job.when) if job.when[0] == "+" else max(0, int(job.when) - now_ms)
    return Item(job.id, job.name, job.queue, job.envelope, delay_ms, now_ms + delay_ms, job.digest, job.quiet)
