"""Jobs of one class or function, by their ids: which queue and connection they are in is known from the declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from delayq.core.errors import ConfigError
from delayq.core.states import Answer, State
from delayq.core.views import JobInfo, JobRef, RefHome
from delayq.drivers.serving.connection import BrokerConnection
from delayq.jobs.current import current_manager
from delayq.jobs.options import HandlerOptions

if TYPE_CHECKING:
    from delayq.drivers.redis_connection import RedisConnection


class RedisPlace(NamedTuple):
    """Where the jobs of one name go that do not say otherwise: a queue of a Redis."""

    connection: RedisConnection
    queue: str

    def cancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.cancel`."""
        client = self.connection.client
        answer = client.cancel(job_id, queue=self.queue, running=running)
        if answer is Answer.UNKNOWN:
            client.run(client.verbs.elsewhere(job_id, self.queue, advice=self._advice("cancel", job_id)))
        return answer

    async def acancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.acancel`."""
        client = self.connection.aclient
        answer = await client.cancel(job_id, queue=self.queue, running=running)
        if answer is Answer.UNKNOWN:
            await client.run(client.verbs.elsewhere(job_id, self.queue, advice=self._advice("cancel", job_id)))
        return answer

    def find(self, job_id: str) -> JobInfo | None:
        """As `Job.find`."""
        client = self.connection.client
        info = client.get(job_id, queue=self.queue)
        if info is None:
            client.run(client.verbs.elsewhere(job_id, self.queue, advice=self._advice("get", job_id)))
        return info

    async def afind(self, job_id: str) -> JobInfo | None:
        """As `Job.afind`."""
        client = self.connection.aclient
        info = await client.get(job_id, queue=self.queue)
        if info is None:
            await client.run(client.verbs.elsewhere(job_id, self.queue, advice=self._advice("get", job_id)))
        return info

    def _advice(self, verb: str, job_id: str) -> str:
        """The call that reaches the job in another queue: the methods of a class and a function take no queue."""
        name = self.connection.name
        own = name == current_manager().settings.connection
        client = "DelayQ()" if own else f"current_manager().connection({name!r}).client"
        return f'Use {client}.{verb}({job_id!r}, queue="{{queue}}").'


class BrokerPlace(NamedTuple):
    """As `RedisPlace`, of another backend. Other queues are not searched; what it cannot do is `InvalidInput`."""

    home: RefHome
    queue: str

    def cancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.cancel`."""
        return self.home.cancel(self._ref(job_id), running)

    async def acancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.acancel`."""
        return await self.home.acancel(self._ref(job_id), running)

    def find(self, job_id: str) -> JobInfo | None:
        """As `Job.find`."""
        return self.home.get(self._ref(job_id))

    async def afind(self, job_id: str) -> JobInfo | None:
        """As `Job.afind`."""
        return await self.home.aget(self._ref(job_id))

    def _ref(self, job_id: str) -> JobRef:
        return JobRef(job_id, self.queue, State.ABSENT, None, Answer.UNKNOWN)


Place: TypeAlias = RedisPlace | BrokerPlace


def place_of(name: str, declared: HandlerOptions, kinds: Sequence[type] = ()) -> Place:
    """The queue and the connection that a job of that name is sent to. Raises `ConfigError` when that keeps no jobs."""
    manager = current_manager()
    route = manager.route_of(name, kinds)
    connection = manager.connection(declared.connection or route.connection)
    queue = declared.queue or route.queue
    if isinstance(connection, BrokerConnection) and connection.home is not None:
        return BrokerPlace(connection.home, queue or connection.options.queue)
    client = getattr(connection, "client", None)
    if client is None:
        raise ConfigError(
            f"The jobs {name!r} go over the connection {connection.name!r}, which cannot be asked for one by its id.",
            hint="Use the command line with --connection, or its backend.",
        )
    return RedisPlace(connection, queue or client.options.queue)  # type: ignore[arg-type]  # it has
