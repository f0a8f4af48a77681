"""Calls that change queues, and the switches for all workers."""

from typing import Any, Final, Literal

import msgspec

from delayq.core.views import Control
from delayq.redis.calls.call import Call, command, queue_call, script_call, texts
from delayq.redis.keys import Keys
from delayq.redis.scripts import load

Switch = Literal["", "pause", "maintenance", "restart"]

CLEAR_LIMIT: Final = 500
"""Maximum number of jobs that one call of clear.lua deletes."""

UNTIL_ENDED = 0
"""The value of `for_ms` for a pause or maintenance without end."""
END = -1
"""The value of `for_ms` that ends a pause or maintenance."""


class Configured(msgspec.Struct, frozen=True, gc=False):
    """The settings of a queue and its number of jobs. `shards` is 0 if the queue has never stored a number."""

    lease_ms: int
    shards: int
    jobs: int


class Holds(msgspec.Struct, frozen=True, gc=False):
    """The numbers of jobs and records in a queue. A queue with a number above 0 cannot be removed.

    `in_stream`: ready and reserved jobs. `other`: jobs in no state, which only damaged data has. `outbox`: job-end
    records.
    """

    scheduled: int
    in_stream: int
    failed: int
    completed: int
    other: int
    outbox: int


def list_queue(keys: Keys, queue: str) -> Call[bool]:
    """Add a queue to the list of all queues, where movers and janitors find it.

    The call returns True if the queue is new.
    """
    return command("SADD", keys.queues, queue, parse=bool)


def unlist_queue(keys: Keys, queue: str) -> Call[bool]:
    """Remove a queue from the list of all queues. The call returns True if the queue was on the list."""
    return command("SREM", keys.queues, queue, parse=bool)


def pause(keys: Keys, queue: str, *, for_ms: int, lease_ms: int, now_ms: str = "") -> Call[int]:
    """Pause or resume a queue. `for_ms`: length of the pause; UNTIL_ENDED = without end; END = resume the queue.

    The call returns the end of the pause in epoch ms; 0 = until the queue is resumed, -1 = not paused.
    """
    return queue_call(
        "pause",
        keys,
        queue,
        int,
        now=now_ms,
        queue=queue,
        wake=keys.wake,
        for_ms=for_ms,
        lease_ms=lease_ms,
    )


def control(keys: Keys, what: Switch = "", *, for_ms: int = 0, reason: str = "", now_ms: str = "") -> Call[Control]:
    """Read the switches for all workers. If `what` names a switch, set this switch first."""
    return script_call(
        load("control"),
        (keys.control,),
        _read_control,
        repeatable=True,
        reads_only=not what,
        now=now_ms,
        what=what,
        for_ms=for_ms,
        reason=reason,
    )


def clear(keys: Keys, queue: str, *, limit: int = CLEAR_LIMIT) -> Call[int]:
    """Delete up to `limit` scheduled and ready jobs.

    The call returns the number of deleted jobs. Make further calls until this number is 0. After a lost reply, the
    call is not sent again (`repeatable=False`), because the second reply would not count the jobs of the first one.
    """
    return queue_call("clear", keys, queue, int, repeatable=False, limit=limit, queue=queue, wake=keys.wake)


def configure(
    keys: Keys, queue: str, *, default_lease_ms: int, lease_ms: int | None = None, shards: int | None = None
) -> Call[Configured]:
    """Set the lease and the number of shards of a queue. None = no change.

    `default_lease_ms`: the lease of a new queue if `lease_ms` is None. The number of shards can change only while the
    queue has no jobs.
    """
    return queue_call(
        "queue_configure",
        keys,
        queue,
        lambda reply: Configured(reply[0], int(reply[1] or 0), reply[2]),
        lease_ms="" if lease_ms is None else lease_ms,
        default_lease_ms=default_lease_ms,
        shards="" if shards is None else shards,
    )


def remove(keys: Keys, queue: str, *, look: bool) -> Call[Holds]:
    """Remove the queue if it is empty. In any case, return its numbers of jobs and records.

    With `look`, only return the numbers.
    """
    return queue_call("queue_remove", keys, queue, lambda reply: Holds(*reply), reads_only=look, look=int(look))


def _read_control(reply: list[Any]) -> Control:
    now_ms, *times, reason, paused_reason = reply
    paused, until, since, restart = (None if time < 0 else time for time in times)
    return Control(now_ms, paused, until, since, restart, *texts([reason, paused_reason]))


def holds_by_name(holds: Holds) -> dict[str, int]:
    """Return the numbers by the names of `QueueView.holds`."""
    return {
        "scheduled": holds.scheduled,
        "ready_or_reserved": holds.in_stream,
        "failed": holds.failed,
        "completed": holds.completed,
        "other": holds.other,
        "outbox": holds.outbox,
    }
