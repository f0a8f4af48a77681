"""What the connections without a backend share: each job is checked as always, then taken by `_take`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw
from delayq.core.states import OnConflict, State
from delayq.core.views import Fate, JobRef
from delayq.drivers.capabilities import Capabilities, refuse_job, refuse_spec


class LocalConnection(ABC):
    """A `Connection` that stores nothing. Ids are never taken here, so `on_conflict` has nothing to decide."""

    can: Capabilities | None = None
    """What it can do of what a job may ask for; None: nothing is refused, as there is nothing to be promised."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = replace(options, travels=False)

    @abstractmethod
    def _take(self, job: Prepared) -> Fate:
        """Do with a checked job what this connection is for."""

    @abstractmethod
    async def _atake(self, job: Prepared) -> Fate:
        """As `_take`."""

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Take one."""
        job = self._prepare(spec, on_conflict)
        return _ref(job, self._take(job))

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """Take them in order, once all are checked."""
        return [_ref(job, self._take(job)) for job in [self._prepare(spec, on_conflict) for spec in specs]]

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Take an envelope."""
        job = self._checked(prepare_raw(envelope, self.options, queue, delay))
        return _ref(job, self._take(job))

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        job = self._prepare(spec, on_conflict)
        return _ref(job, await self._atake(job))

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        return [_ref(job, await self._atake(job)) for job in [self._prepare(spec, on_conflict) for spec in specs]]

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        job = self._checked(prepare_raw(envelope, self.options, queue, delay))
        return _ref(job, await self._atake(job))

    def close(self) -> None:  # noqa: B027  (nothing to close is what these have in common)
        """Nothing is open."""

    async def aclose(self) -> None:  # noqa: B027
        """Nothing is open."""

    def _prepare(self, spec: JobSpec, on_conflict: OnConflict) -> Prepared:
        if self.can is not None:
            refuse_spec(spec, on_conflict, self.can, self.name)
        return self._checked(prepare(spec, self.options, _now_ms()))

    def _checked(self, job: Prepared) -> Prepared:
        if self.can is not None:
            delay_ms = int(job.when) if job.when[0] == "+" else int(job.when) - _now_ms()
            refuse_job(job.envelope, delay_ms, self.can, self.name)
        return job


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ref(job: Prepared, fate: Fate) -> JobRef:
    return JobRef(job.id, job.queue, State.ABSENT, None, fate, job.name)
