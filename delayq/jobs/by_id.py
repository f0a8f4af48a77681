"""Jobs of one class or function, by their ids: which queue and connection they are in is known from the declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from delayq.core.errors import ConfigError
from delayq.core.states import Answer
from delayq.core.views import JobInfo
from delayq.jobs.current import current_manager
from delayq.jobs.options import HandlerOptions

if TYPE_CHECKING:
    from delayq.drivers.redis_connection import RedisConnection


class Place(NamedTuple):
    """Where the jobs of one name go that do not say otherwise."""

    connection: RedisConnection
    queue: str

    def cancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.cancel`."""
        client = self.connection.client
        answer = client.cancel(job_id, queue=self.queue, running=running)
        if answer is Answer.UNKNOWN:
            client.run(client.verbs.elsewhere(job_id, self.queue))
        return answer

    async def acancel(self, job_id: str, running: bool) -> Answer:
        """As `Job.acancel`."""
        client = self.connection.aclient
        answer = await client.cancel(job_id, queue=self.queue, running=running)
        if answer is Answer.UNKNOWN:
            await client.run(client.verbs.elsewhere(job_id, self.queue))
        return answer

    def find(self, job_id: str) -> JobInfo | None:
        """As `Job.find`."""
        client = self.connection.client
        info = client.get(job_id, queue=self.queue)
        if info is None:
            client.run(client.verbs.elsewhere(job_id, self.queue))
        return info

    async def afind(self, job_id: str) -> JobInfo | None:
        """As `Job.afind`."""
        client = self.connection.aclient
        info = await client.get(job_id, queue=self.queue)
        if info is None:
            await client.run(client.verbs.elsewhere(job_id, self.queue))
        return info


def place_of(name: str, declared: HandlerOptions, kinds: Sequence[type] = ()) -> Place:
    """The queue and the connection that a job of that name is sent to. Raises `ConfigError` when that is no Redis."""
    manager = current_manager()
    route = manager.route_of(name, kinds)
    connection = manager.connection(declared.connection or route.connection)
    client = getattr(connection, "client", None)
    if client is None:
        raise ConfigError(
            f"The jobs {name!r} go over the connection {connection.name!r}, which cannot be asked for one by its id.",
            hint="Use the command line with --connection, or its backend.",
        )
    return Place(connection, declared.queue or route.queue or client.options.queue)  # type: ignore[arg-type]  # it has
