"""The connection that sends a job over the first of several connections that takes it.

    [connections.safe]
    driver = "failover"
    to = ["default", "backup"]      in this order; each keeps jobs itself, so none of them is sync or null
    rest = "5s"                     how long one that failed is passed over before it is tried again

`JobRef.connection` says which one took the job, and the event `QueueFailedOver` that one was passed over, once until it
works again. Workers serve the connections it leads to, not the failover.

**Duplicates.** The next connection is tried only where the one before surely took nothing (`BackendUnavailable`,
`BackendFull`). When a reply was lost, the job may be stored there, and a second copy elsewhere would run beside it:
then `OutcomeUnknown` is raised with the job's id, as without a failover. All tries carry the same id.

Many jobs are sent one by one, because a part of a group may have been taken before the connection failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from delayq.core.errors import BackendFull, BackendUnavailable, ConfigError
from delayq.core.events import Tell
from delayq.core.names import new_id
from delayq.core.queue_events import QueueFailedOver
from delayq.core.spec import Delay, JobSpec
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.connection import Connection

log = logging.getLogger("delayq.failover")

CAPABILITIES: Final = Capabilities(serves=False, delay=True, chains=True)
TOOK_NOTHING: Final = (BackendUnavailable, BackendFull)


class FailoverConnection:
    """A `Connection` over others. `find` gives one of them by its name; each is asked for when it is first needed."""

    def __init__(
        self, name: str, to: Sequence[str], find: Callable[[str], Connection], tell: Tell, *, rest_ms: int = 5_000
    ) -> None:
        self.name = name
        self.to = tuple(to)
        self._find = find
        self._tell = tell
        self._rest_s = rest_ms / 1000
        self._lock = threading.Lock()
        self._failed_at: dict[str, float] = {}
        self._untold: dict[str, Exception] = {}

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Over the first that takes it; raises the last one's error when none does."""
        spec = _with_id(spec)
        return self._over(lambda connection: connection.schedule(spec, on_conflict))

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """One by one, in order."""
        return [self.schedule(spec, on_conflict) for spec in specs]

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `schedule`; the envelope has its id."""
        return self._over(lambda connection: connection.push_raw(envelope, queue=queue, delay=delay))

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        spec = _with_id(spec)
        return await self._aover(lambda connection: connection.aschedule(spec, on_conflict))

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        return [await self.aschedule(spec, on_conflict) for spec in specs]

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        return await self._aover(lambda connection: connection.apush_raw(envelope, queue=queue, delay=delay))

    def close(self) -> None:
        """Nothing of its own is open; the connections it leads to are the manager's."""

    async def aclose(self) -> None:
        """As `close`."""

    def _over(self, send: Callable[[Connection], JobRef]) -> JobRef:
        *names, last = self._order()
        for name in names:
            try:
                return self._took(name, send(self._find(name)))
            except TOOK_NOTHING as error:
                self._note(name, error)
        return self._took(last, send(self._find(last)))

    async def _aover(self, send: Callable[[Connection], Awaitable[JobRef]]) -> JobRef:
        *names, last = self._order()
        for name in names:
            try:
                return self._took(name, await send(self._find(name)))
            except TOOK_NOTHING as error:
                self._note(name, error)
        return self._took(last, await send(self._find(last)))

    def _order(self) -> list[str]:
        """As they were named; those that failed just now come last, for they may work again by then."""
        now = time.monotonic()
        with self._lock:
            resting = {name for name, at in self._failed_at.items() if now - at < self._rest_s}
        return sorted(self.to, key=lambda name: name in resting)

    def _note(self, name: str, error: Exception) -> None:
        with self._lock:
            if name not in self._failed_at:
                self._untold[name] = error
            self._failed_at[name] = time.monotonic()

    def _took(self, name: str, ref: JobRef) -> JobRef:
        with self._lock:
            self._failed_at.pop(name, None)
            self._untold.pop(name, None)
            news, self._untold = self._untold, {}
        for failed, error in news.items():
            log.warning("connection %s: %s does not take jobs (%s); %s does", self.name, failed, error, name)
            self._tell(QueueFailedOver(self.name, failed, name, error))
        return msgspec.structs.replace(ref, connection=name).asked_at(ref.home)


def check_targets(name: str, to: list[str], driver_of: Callable[[str], str], keep_nothing: Sequence[str]) -> list[str]:
    """The names it leads to. Raises `ConfigError` for fewer than two, and for one that keeps no jobs itself."""
    if len(set(to)) < 2:
        raise ConfigError(
            f"The connection {name!r} needs at least two others to lead to.", hint='to = ["default", "backup"]'
        )
    for one in to:
        driver = driver_of(one)
        if driver in keep_nothing:
            raise ConfigError(
                f"The connection {name!r} leads to {one!r}, whose driver {driver} keeps no jobs.",
                hint="A failover never falls back to running or dropping a job; name connections that keep it.",
            )
    return to


def _with_id(spec: JobSpec) -> JobSpec:
    """So that every try is the same job."""
    return spec if spec.id is not None else msgspec.structs.replace(spec, id=new_id())
