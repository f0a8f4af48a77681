"""Changes the number of shards of a queue that has no jobs.

1. Count the jobs in all old and new shards. If a shard has a job or a record in its outbox, refuse the change.
2. Store the old number plus CHANGING in all shards. From now on, no client can store a job, because no client has this
   number. A shard that received a job after step 1 refuses this number.
3. Count again. If a job arrived after step 1, store the old number in all shards again, and refuse the change.
4. Store the new number in all shards, beginning with the first shard, because clients read the number there. So no
   shard accepts jobs by a number that clients cannot read yet.

If a change is interrupted, no job is lost. Producers wait up to 5 s for the end of the change, and then raise
BackendUnavailable. To complete the change, make the same change again.
"""

from collections.abc import Mapping, Sequence

from delayq.core.errors import BackendError, QueueInUse
from delayq.core.shards import shard_names
from delayq.core.views import HOLDS_TEXT
from delayq.redis.calls import queues as calls
from delayq.redis.calls.call import value_of
from delayq.redis.calls.inspect import stats
from delayq.redis.session import Session
from delayq.redis.shard_counts import CHANGING


async def change_shards(session: Session, queue: str, count: int) -> None:
    """Set the number of shards of a queue without jobs. If it has jobs, raise QueueInUse with the numbers of jobs."""
    old = len(await session.shards.read(queue))
    shards = shard_names(queue, max(old, count))
    if count == old:  # complete an interrupted change, or an interrupted return to this number
        await _give_first(session, queue, shards, count)
        return
    must_be_empty(queue, await read_holds(session, shards))
    try:
        is_marked = await _give(session, queue, shards, CHANGING + old)
        holds = await read_holds(session, shards)
    except BackendError:
        await _give_first(session, queue, shards, old)
        raise
    if not is_marked or any(holds.values()):
        await _give_first(session, queue, shards, old)
        must_be_empty(queue, holds)
        raise QueueInUse(f"The queue {queue!r} received a job during the change.", hint="Try again.")
    await _give_first(session, queue, shards, count)


async def _give_first(session: Session, queue: str, shards: Sequence[str], number: int) -> None:
    """Store a number in the first shard, and then in the others."""
    await _give(session, queue, shards[:1], number)
    await session.shards.read(queue)
    await _give(session, queue, shards[1:], number)


async def _give(session: Session, queue: str, shards: Sequence[str], number: int) -> bool:
    """Store a number and the lease of the queue in shards. Return False if a shard with a job refused it."""
    lease_ms = (await session.executor.run(stats(session.keys, queue))).lease_ms or session.options.lease_ms
    configure = [
        calls.configure(session.keys, shard, default_lease_ms=lease_ms, lease_ms=lease_ms, shards=number)
        for shard in shards
    ]
    outcomes = [value_of(outcome) for outcome in await session.executor.run_all(configure)]
    return all(outcome.shards == number for outcome in outcomes)


async def read_holds(session: Session, shards: Sequence[str]) -> dict[str, int]:
    """Return the total numbers of jobs and records in these shards, by the names of `QueueView.holds`."""
    outcomes = await session.executor.run_all([calls.remove(session.keys, shard, look=True) for shard in shards])
    rows = [calls.holds_by_name(value_of(outcome)) for outcome in outcomes]
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def must_be_empty(queue: str, holds: Mapping[str, int]) -> None:
    """Raise QueueInUse if a queue has jobs or records."""
    found = [f"{count:,} {HOLDS_TEXT.get(name, name)}" for name, count in holds.items() if count]
    if found:
        raise QueueInUse(
            f"The queue {queue!r} has jobs: {', '.join(found)}.",
            hint=f"`delayq clear --queue {queue}` deletes scheduled and ready jobs. "
            f"`delayq failed flush --queue {queue}` deletes failed jobs. Completed jobs are deleted when their "
            "retention ends.",
        )
