"""A connection to the private server, in the test's time."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.spec import Delay, JobSpec
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.redis_connection import RedisConnection


class TravelConnection(RedisConnection):
    """As the real one. What is awaited blocks for the blink it takes: no asyncio connection outlives a test's loop."""

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        return self.schedule(spec, on_conflict)

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        return self.schedule_many(specs, on_conflict)

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        return self.push_raw(envelope, queue=queue, delay=delay)

    def close(self) -> None:
        """Nothing: the connections are shared, and closed at the end of the journey."""

    async def aclose(self) -> None:
        """As `close`."""
