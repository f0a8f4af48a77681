"""The producers' side of Redis: the two shells over one connector, under a name."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.connection import AsyncBatchStore, BatchStore
from delayq.redis.aio import AsyncClient
from delayq.redis.carrying import carried, carry
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.ref_home import RedisHome
from delayq.redis.verbs import Clock, server_clock


class RedisConnection:
    """A `Connection` to a Redis. `client` has all the other verbs."""

    def __init__(self, name: str, connector: Connector, options: Options, clock: Clock = server_clock) -> None:
        self.name = name
        self.client = Client(connector, options, clock)
        self.aclient = AsyncClient(connector, options, clock)
        self._home = RedisHome(connector, self.client.verbs)
        self.batches: BatchStore = self.client.batches
        self.abatches: AsyncBatchStore = self.aclient.batches

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """One script call."""
        return self._home.one(self.client.run(self.client.verbs.schedule(spec, on_conflict)))

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """One script call for each chunk of a queue."""
        refs = self.client.run(self.client.verbs.schedule_many(specs, on_conflict))
        self._home.all(refs)
        return refs

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """One script call."""
        return self.client.push_raw(envelope, queue=queue, delay=delay)

    def carry(self, jobs: Sequence[Prepared], on_conflict: OnConflict, token: str) -> list[JobRef]:
        """For relays: jobs of one queue, few enough for one script call; sent again, the answer is the first one."""
        return self.client.run(carry(self.client.verbs, jobs, on_conflict, token))

    def carried(self, queue: str, token: str) -> None:
        """For relays: nobody will send those again on purpose."""
        self.client.run(carried(self.client.verbs, queue, token))

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        return self._home.one(await self.aclient.run(self.aclient.verbs.schedule(spec, on_conflict)))

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        refs = await self.aclient.run(self.aclient.verbs.schedule_many(specs, on_conflict))
        self._home.all(refs)
        return refs

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        return await self.aclient.push_raw(envelope, queue=queue, delay=delay)

    def close(self) -> None:
        """Close the blocking connections."""
        self.client.close()

    async def aclose(self) -> None:
        """Close the asyncio connections."""
        await self.aclient.close()
