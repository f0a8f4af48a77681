"""Changes the number of shards of a queue that has no jobs.

1. Count the jobs in all old and new shards. If a shard has a job or a record in its outbox, refuse the change.
2. Store the old number plus CHANGING in all shards. From now on, no client can store a job, because the number
   that a client passes must be the stored number. A shard that received a job after step 1 refuses this number.
3. Count again, and copy the pause of the first shard to the other shards. If a job arrived after step 1, store the old
   number in all shards again, and refuse the change.
4. Store the new number in all shards, beginning with the first shard, because clients read the number there. So no
   shard accepts a job that was placed with the new number before all clients can read this number.

If a change is interrupted, no job is lost. Producers wait up to 5 s for the end of the change, and then raise
BackendUnavailable. To complete the change, make the same change again. A lock lets only one client at a time change
the number of a queue.
"""

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from delayq.core.errors import BackendError, OutcomeUnknown, QueueInUse, replace_hint
from delayq.core.shards import shard_names
from delayq.core.views import HOLDS_TEXT
from delayq.redis.calls import queues as calls
from delayq.redis.calls.call import Call, command, read, value_of
from delayq.redis.calls.inspect import stats
from delayq.redis.calls.queues import END, UNTIL_ENDED
from delayq.redis.calls.shards import CHANGING
from delayq.redis.session import Session

LOCK_MS: Final = 30_000
"""After this time in ms, another client may change the number of shards, because the first one has probably crashed."""


class Progress:
    """The progress of a change. `is_partial`: some shards may have another number than others."""

    def __init__(self) -> None:
        self.is_partial = False


async def change_shards(session: Session, queue: str, count: int) -> None:
    """Set the number of shards of an empty queue. If it has jobs or records, raise QueueInUse with their numbers.

    The hint of a BackendError states whether the change is incomplete and must therefore be repeated.
    """
    progress = Progress()
    again = f"`delayq queue set {queue} --shards {count}`"
    try:
        async with _locked(session, queue):
            await _change(session, queue, count, progress)
    except BackendError as error:
        hint = f"The number of shards is unchanged. You can safely repeat the change: {again}."
        if progress.is_partial:
            hint = f"The change is incomplete, so new jobs may be refused. Repeat it until it succeeds: {again}."
        cause = "" if isinstance(error, OutcomeUnknown) else error.hint
        replace_hint(error, f"{cause} {hint}".lstrip())
        raise


async def _change(session: Session, queue: str, count: int, progress: Progress) -> None:
    old = len(await session.shards.read(queue))
    shards = shard_names(queue, max(old, count))
    if count == old:  # complete an interrupted change, or an interrupted return to this number
        progress.is_partial = True
        await _give_first(session, queue, shards, count)
        return
    must_be_empty(queue, await read_holds(session, shards))
    progress.is_partial = True
    try:
        is_marked = await _give(session, queue, shards, CHANGING + old)
        holds = await read_holds(session, shards)
        await _copy_pause(session, queue, shards[1:])
    except BackendError:
        await _give_first(session, queue, shards, old)
        progress.is_partial = False
        raise
    if not is_marked or any(holds.values()):
        await _give_first(session, queue, shards, old)
        must_be_empty(queue, holds)
        raise QueueInUse(
            f"The queue {queue!r} received a job during the change. Now, it has 0 jobs.", hint="Try again."
        )
    await _give_first(session, queue, shards, count)


@asynccontextmanager
async def _locked(session: Session, queue: str) -> AsyncIterator[None]:
    """Let only one client at a time change the number of shards of a queue.

    If another client is changing the number, raise QueueInUse.

    Two changes at the same time could hide jobs: one of them finds a shard empty, and then the other one allows jobs
    there. After a crash, the lock expires.
    """
    key, token = session.keys.of_queue(queue, "once:shards"), secrets.token_bytes(16)
    trip: list[Call[Any]] = [
        command("SET", key, token, "NX", "PX", LOCK_MS, parse=lambda reply: reply),
        read("GET", key, parse=lambda reply: reply),
    ]
    _, owner = [value_of(outcome) for outcome in await session.executor.run_all(trip)]
    if owner != token:
        raise QueueInUse(
            f"The number of shards of the queue {queue!r} is being changed by another command.",
            hint=f"Try again when that command has ended, or {LOCK_MS // 1000} s after it crashed.",
        )
    until = time.monotonic() + LOCK_MS / 1000
    try:
        yield
    finally:
        if time.monotonic() < until:
            with suppress(BackendError):
                await session.executor.run_all([command("DEL", key, parse=int)])


async def _copy_pause(session: Session, queue: str, shards: Sequence[str]) -> None:
    """Give the pause of the first shard to the other shards. Without such a pause, end their pauses."""
    lease_ms = session.options.lease_ms
    first = await session.executor.run(stats(session.keys, queue))
    until_ms = first.paused_until_ms
    for_ms = END if until_ms is None else max(until_ms - first.now_ms, 1) if until_ms else UNTIL_ENDED
    pause = [calls.pause(session.keys, shard, for_ms=for_ms, lease_ms=lease_ms) for shard in shards]
    for outcome in await session.executor.run_all(pause):
        value_of(outcome)


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
            f"The queue {queue!r} is not empty: {', '.join(found)}.",
            hint=f"`delayq clear --queue {queue}` deletes scheduled and ready jobs. "
            f"`delayq failed flush --queue {queue}` deletes failed jobs. Completed jobs are deleted when their "
            "retention ends, or by the method `forget`. Reserved jobs leave the queue when their workers have finished "
            "them. Records in the outbox are deleted while a worker with a mover, or `delayq move`, serves the queue.",
        )
