"""Calls of workers, movers and janitors."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.backends.protocol import Acked, Delivery, Failed, Held, Promoted, Reclaimed, Released, Renewed
from delayq.redis.commands.call import Call, command, script_call
from delayq.redis.commands.schedule import HIGH_WATER
from delayq.redis.keys import GROUP, Keys
from delayq.redis.scripts import load

PROMOTE_LIMIT: Final = 500
RECLAIM_LIMIT: Final = 250
MAX_RECOVERIES: Final = 3

LOST: Final = msgspec.json.encode({"type": "PayloadLost", "message": "the payload of this job was lost in Redis"})
VANISHED: Final = msgspec.json.encode(
    {"type": "WorkerVanished", "message": f"the worker vanished {MAX_RECOVERIES + 1} times while it ran this job"}
)


def promote(keys: Keys, queue: str, *, now_ms: str = "", limit: int = PROMOTE_LIMIT) -> Call[Promoted]:
    """Append the jobs that are due to the stream."""
    script = load("promote")
    stub = msgspec.json.encode({"v": 1, "queue": queue})
    return script_call(
        script,
        keys.of_script(script, queue),
        lambda reply: Promoted(*reply),
        repeatable=True,
        now=now_ms,
        limit=limit,
        high_water=HIGH_WATER,
        stub=stub,
        failure=LOST,
    )


def ack(keys: Keys, queue: str, done: Sequence[Acked], *, now_ms: str = "") -> Call[list[bool]]:
    """Settle jobs that are done. The answer says for each whether it was still the caller's."""
    script = load("ack")
    rows = [(job.id, job.entry, job.retention_ms, job.result) for job in done]
    return script_call(script, keys.of_script(script, queue), _read_settled, repeatable=True, now=now_ms, rows=rows)


def release(keys: Keys, queue: str, again: Sequence[Released], *, now_ms: str = "") -> Call[list[bool]]:
    """Settle jobs that are to run again later. The answer says for each whether it was still the caller's."""
    script = load("release")
    rows = [(job.id, job.entry, job.delay_ms, job.envelope, job.failure) for job in again]
    return script_call(
        script,
        keys.of_script(script, queue),
        _read_settled,
        repeatable=True,
        now=now_ms,
        queue=queue,
        wake=keys.wake,
        rows=rows,
    )


def fail(keys: Keys, queue: str, failed: Sequence[Failed], *, now_ms: str = "") -> Call[list[bool]]:
    """Settle jobs that are given up. The answer says for each whether it was still the caller's."""
    script = load("fail")
    rows = [(job.id, job.entry, job.envelope, job.failure) for job in failed]
    return script_call(script, keys.of_script(script, queue), _read_settled, repeatable=True, now=now_ms, rows=rows)


def hand_back(keys: Keys, queue: str, held: Sequence[Held], *, now_ms: str = "") -> Call[list[bool]]:
    """Give back jobs that were not started; nothing is counted against them."""
    script = load("hand_back")
    rows = [(job.id, job.entry) for job in held]
    return script_call(script, keys.of_script(script, queue), _read_settled, repeatable=True, now=now_ms, rows=rows)


def renew(keys: Keys, queue: str, consumer: str, held: Sequence[Held]) -> Call[Renewed]:
    """Begin the leases of these jobs anew."""
    script = load("renew")
    rows = [(job.id, job.entry) for job in held]
    return script_call(
        script,
        keys.of_script(script, queue),
        lambda reply: Renewed(max(reply[0] - len(held), 0), [job_id.decode() for job_id in reply[1:]]),
        repeatable=True,
        consumer=consumer,
        rows=rows,
    )


def reclaim(keys: Keys, queue: str, held: Sequence[Held] = (), *, now_ms: str = "") -> Call[Reclaimed]:
    """Take back what vanished workers hold: the given jobs, or without them all whose lease is over."""
    script = load("reclaim")
    return script_call(
        script,
        keys.of_script(script, queue),
        lambda reply: Reclaimed(*reply),
        repeatable=True,
        now=now_ms,
        limit=RECLAIM_LIMIT,
        max_recoveries=MAX_RECOVERIES,
        failure=VANISHED,
        rows=[(job.id, job.entry) for job in held],
    )


def read_new(keys: Keys, queue: str, consumer: str, limit: int) -> Call[list[Delivery]]:
    """Take up to `limit` undelivered jobs.

    Not repeatable: deliveries of a lost answer stay in the consumer's pending list, and `read_pending` finds them.
    """
    tail = ("STREAMS", keys.of_queue(queue, "stream"), ">")
    return _read_group([queue], consumer, limit, tail, repeatable=False)


def wait_new(keys: Keys, queues: Sequence[str], consumer: str, timeout_ms: int) -> Call[list[Delivery]]:
    """Wait up to `timeout_ms` for one job of any of the queues."""
    streams = [keys.of_queue(queue, "stream") for queue in queues]
    tail: tuple[str | int, ...] = ("BLOCK", timeout_ms, "STREAMS", *streams, *[">" for _ in streams])
    return _read_group(queues, consumer, 1, tail, repeatable=False)


def read_pending(keys: Keys, queue: str, consumer: str) -> Call[list[Delivery]]:
    """Read again what the consumer has been given and has not settled."""
    tail = ("STREAMS", keys.of_queue(queue, "stream"), "0")
    return _read_group([queue], consumer, 500, tail, repeatable=True)


def create_group(keys: Keys, queue: str) -> Call[None]:
    """Create the stream and its group, so that a worker can wait for a queue that never had a job."""
    words = ("XGROUP", "CREATE", keys.of_queue(queue, "stream"), GROUP, "0", "MKSTREAM")
    return command(*words, parse=lambda _: None)


def read_lease(keys: Keys, queue: str) -> Call[int | None]:
    """Read the lease of a queue in ms; None for a queue that never had a job."""
    return command("HGET", keys.of_queue(queue, "meta"), "lease_ms", parse=lambda reply: int(reply) if reply else None)


def _read_group(
    queues: Sequence[str], consumer: str, limit: int, tail: tuple[str | int, ...], *, repeatable: bool
) -> Call[list[Delivery]]:
    names = [queue.encode() for queue in queues]

    def parse(reply: list[Any] | None) -> list[Delivery]:
        found: list[Delivery] = []
        for key, rows in reply or []:
            queue = next(name for name in names if b":{%b}:" % name in key).decode()
            found += [_read_entry(queue, entry, fields) for entry, fields in rows]
        return found

    words = ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", limit, *tail)
    return command(*words, parse=parse, repeatable=repeatable)


def _read_entry(queue: str, entry: bytes, fields: list[bytes] | None) -> Delivery:
    """Read one entry of the stream. An entry that has gone comes back without fields."""
    named = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    return Delivery(
        queue=queue,
        id=named.get(b"id", b"").decode(),
        entry=entry.decode(),
        envelope=named.get(b"job", b""),
        recoveries=int(named.get(b"recoveries", 0)),
    )


def _read_settled(reply: list[int]) -> list[bool]:
    return [answer == 1 for answer in reply]
