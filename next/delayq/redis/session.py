"""The session of a client: its connection to one server, with the names of keys, the options and the routes.

All operations of a client use its session. Besides sending calls, a session

* chooses the queue of a new job by the routes,
* adds queues to the list of queues, where movers and janitors find them,
* waits until a change is durable, which means on disk or on replicas, if the options ask for that,
* searches other queues for an id that the default queue, or the queue of a declared job, does not have.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from delayq.core.declared import declarations, declared_options, with_options
from delayq.core.errors import (
    BackendError,
    CallRefused,
    FoundElsewhere,
    InvalidInput,
    NodeError,
    NodeUnavailable,
    NotConfirmed,
)
from delayq.core.job_spec import JobSpec
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.core.views import JobInfo
from delayq.redis.calls import inspect
from delayq.redis.calls.call import Call, command, value_of
from delayq.redis.calls.jobs import OfNewQueue
from delayq.redis.calls.queues import list_queue
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts
from delayq.settings.connections import Routes, destination

T = TypeVar("T")

NO_ROUTES: Final = Routes({})

MAX_SEARCHED: Final = 200
"""Maximum number of other queues that are searched for an id."""

CONFIRM_MS: Final = 1_500
"""Longest time of WAIT and WAITAOF, in ms."""


LIST_EVERY: Final = 10.0
"""Seconds after which a producer adds its queue to the list of queues again."""


class Session:
    """The session of one client. Threads may share a session, and event loops a session with an async executor."""

    def __init__(
        self,
        executor: Executor,
        keys: Keys,
        options: Options,
        *,
        routes: Routes = NO_ROUTES,
        connection: str = "",
        create_storage: Callable[[], None] | None = None,
    ) -> None:
        """`connection`: the name of the connection in the settings; '' = settings without a named connection.

        `create_storage`: creates the data directory of the embedded server if it is missing. Only operations that store
        new jobs call it. None = this session uses another server.
        """
        self.executor = executor
        self.keys = keys
        self.options = options
        self._routes = routes
        self._connection = connection
        self.create_storage = create_storage
        self.shards = ShardCounts(executor, keys)
        self._list_at: dict[str, float] = {}
        self._told_unlisted: set[str] = set()

    def with_destination(self, spec: JobSpec) -> JobSpec:
        """Return a spec with the options that its job declares, and with the queue of its route.

        Raises InvalidInput if the spec names no queue, and the declaration or a route sends the job to another
        connection.
        """
        if not declarations and not self._routes.table:
            return spec
        declared = declared_options(spec.name)
        if spec.queue is None and (self._routes.table or declared.connection):
            to = destination(
                spec.name,
                self._routes,
                queue=declared.queue,
                connection=declared.connection,
                default_connection=self._connection,
            )
            if to.connection != self._connection:
                raise InvalidInput(
                    f"The job {spec.name!r} belongs to another connection, {to.connection!r}, by its declaration or by "
                    "a route.",
                    hint="Use `dispatch`, which sends jobs to their connections. To send the job to the connection of "
                    "this client, name the queue: queue=.",
                    field="name",
                )
            if to.queue is not None:
                spec = msgspec.structs.replace(spec, queue=to.queue)
        return with_options(spec, declared)

    def with_keys(self, job: JobInfo) -> JobInfo:
        """Return an encrypted job with the keys that decrypt its payload and result. Return any other job unchanged."""
        key_ring = self.options.key_ring
        if key_ring is None or not job.is_encrypted:
            return job
        return msgspec.structs.replace(job, key_ring=key_ring)

    async def write(self, call: Call[T], shard: str, *, may_create: bool = False) -> T:
        """Send a call that changes a shard, and wait for the confirmation that `durability` of the options requires.

        `may_create`: the call may create its queue, so the queue is first added to the list of queues. It is added
        again every LIST_EVERY seconds, and after a call that created the queue, because the server may have lost its
        data, or somebody may have removed the queue. If Redis refuses to add the queue, the call is still sent, because
        a worker serves the queues of `--queue` without the list. The next such call tries to add the queue again.

        Raises the errors of `Executor.run`, and NotConfirmed if the change was made but not confirmed as durable.
        """
        if not may_create or time.monotonic() < self._list_at.get(shard, 0.0):
            if not self.options.durability.waits:
                value = await self.executor.run(call)
            else:
                value = await self._write_confirmed(call, shard)
            if value.__class__ is OfNewQueue:  # the server has lost the list of queues too, or the queue was removed
                (listed,) = await self.executor.run_all([list_queue(self.keys, queue_of(shard))])
                self._note_listing(shard, listed)
            return value
        if self.options.durability.waits:
            (listed,) = await self.executor.run_all([list_queue(self.keys, queue_of(shard))])
            self._note_listing(shard, listed)
            return await self._write_confirmed(call, shard)
        return await self.list_and_run(call, shard)

    async def list_and_run(self, call: Call[T], shard: str) -> T:
        """Add the queue of a shard to the list of queues, and send a call for the shard in the same round trip.

        Raises the errors of `Executor.run`. If Redis refuses to add the queue, the call is still sent.
        """
        trip: list[Call[Any]] = [list_queue(self.keys, queue_of(shard)), call]
        listed, stored = await self.executor.run_all(trip)
        value = cast(T, value_of(stored))
        self._note_listing(shard, listed)
        return value

    def list_again(self, queue: str) -> None:
        """Add a queue to the list of queues again with the next job, for example because the queue was removed."""
        self._list_at.pop(queue, None)

    async def raise_if_elsewhere(self, job_id: str, *, queue: str | None = None) -> None:
        """Raise FoundElsewhere if another queue has the job, or if there are too many other queues to search.

        `queue`: the queue that was searched and does not have the job; None = the default queue. If Redis does not
        permit this user to read the list of queues, nothing is raised. If a node of a cluster does not answer and no
        other queue has the job, NodeUnavailable is raised, because the search is incomplete.
        """
        searched = queue or self.options.queue
        try:
            queues = [name for name in await self.executor.run(inspect.list_queues(self.keys)) if name != searched]
        except CallRefused:
            return
        if len(queues) > MAX_SEARCHED:
            raise FoundElsewhere(
                f"The queue {searched!r} has no job {job_id!r}. The other {len(queues):,} queues were not searched, "
                f"because at most {MAX_SEARCHED} queues are searched.",
                hint="Name the queue with queue=.",
                id=job_id,
            )
        await self.shards.read_all(queues)
        outcomes = await self._which_have(queues, job_id)
        found = [name for name, has in zip(queues, outcomes, strict=True) if has is True]
        failed = [outcome for outcome in outcomes if isinstance(outcome, NodeError)]
        if failed and not found:
            raise NodeUnavailable(
                f"The queue {searched!r} has no job {job_id!r}, but {len(failed)} of {len(queues)} other queues could "
                f"not be searched. {failed[0].message}",
                hint=failed[0].hint,
            )
        if found:
            others = " and ".join(f"the queue {name!r}" for name in found)
            verb = "has" if len(found) == 1 else "have"
            raise FoundElsewhere(
                f"The queue {searched!r} has no job {job_id!r}, but {others} {verb} a job with this id.",
                hint=f"Name the queue: queue={found[0]!r}.",
                id=job_id,
                queues=tuple(found),
            )

    async def _which_have(self, queues: Sequence[str], job_id: str) -> list[bool | BackendError]:
        calls = [inspect.has_job(self.keys, self.shards.of_job(queue, job_id), job_id) for queue in queues]
        return await self.executor.run_all(calls)

    def _note_listing(self, shard: str, listed: bool | BackendError) -> None:
        """Remember that the queue of a shard is on the list.

        If Redis refused to add the queue, log this error once for each queue. If the cluster node that has the list did
        not answer, the next attempt comes only after LIST_EVERY seconds, because otherwise each job would wait for this
        node.
        """
        if not isinstance(listed, BackendError) or isinstance(listed, NodeError):
            self._list_at[shard] = time.monotonic() + LIST_EVERY
        if not isinstance(listed, BackendError):
            return
        queue = queue_of(shard)
        if queue not in self._told_unlisted:
            self._told_unlisted.add(queue)
            _warn_unlisted(queue, listed)

    async def _write_confirmed(self, call: Call[T], shard: str) -> T:
        """Send a call, and WAIT or WAITAOF on the same connection, to make sure that the effect is durable.

        If the call was sent before and writes nothing this time, WAIT would return at once, although the first effect
        may not be durable yet. So a mark is written after the call. The call sends the text of its script instead of
        the hash. If the server did not know the hash, the script would be loaded and run only after WAIT.
        """
        durability = self.options.durability
        as_text = Call(call.words_with_text(), call.parse, call.repeatable)
        mark = command("SET", self.keys.of_queue(shard, "once:mark"), "1", "PX", 1, parse=lambda _: None)
        if durability.fsync:
            wait = command("WAITAOF", 1, 0, CONFIRM_MS, parse=lambda reply: int(reply[0]))
        else:
            wait = command("WAIT", durability.replicas, CONFIRM_MS, parse=int)
        trip: list[Call[Any]] = [as_text, mark, wait]
        stored, _, confirmed = await self.executor.run_all(trip, block=CONFIRM_MS / 1000)
        value = cast(T, value_of(stored))
        wanted = 1 if durability.fsync else durability.replicas
        if isinstance(confirmed, BackendError):
            why = str(confirmed)
        elif confirmed < wanted:
            done = "it was not synced to disk" if durability.fsync else f"{confirmed} of {wanted} replicas confirmed it"
            why = f"{done} within {CONFIRM_MS} ms."
        else:
            return value
        raise NotConfirmed(
            f"Redis at {self.executor.where} made the change, but did not confirm that it is durable: {why}",
            hint="`done` of this error has the result of the call. Repeat the call only with the same id.",
            done=(value,),
        )


def _warn_unlisted(queue: str, error: BackendError) -> None:
    import logging

    logging.getLogger("delayq").warning(
        "queue %s could not be added to the list of queues (%s); if it is not on the list yet, only workers with "
        "--queue %s serve it",
        queue,
        error.message.removesuffix("."),
        queue,
    )
