"""Calls of workers, movers and janitors that move jobs."""

from collections.abc import Sequence
from typing import Any, Final

from delayq.backends.protocol import (
    Acked,
    Delivery,
    DeliveryRef,
    Failed,
    Promoted,
    Reclaimed,
    Released,
    Renewed,
    Stopped,
)
from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.redis.calls.call import Call, command, queue_call
from delayq.redis.keys import GROUP, Keys

PROMOTE_LIMIT: Final = 500
RECLAIM_LIMIT: Final = 250
MAX_HAND_BACK: Final = 100
"""The rows of which one call of hand_back looks at most."""

PENDING_PAGE: Final = 500
"""Deliveries in one page of `read_pending`. A shorter page is the last one."""

FIRST_PENDING: Final = "0"
"""The value of `after` for the first page of `read_pending`."""

PAYLOAD_LOST: Final = failures.encode_open(Failure("PayloadLost", "The payload of this job was lost in Redis."))


STOPPED: Final = 2
"""The value of `alone` for jobs that a cancel stopped; see ack.lua."""


def vanished(max_recoveries: int) -> bytes:
    """Return the failure of a job whose workers vanished too often, without its closing brace."""
    message = f"The worker vanished {max_recoveries + 1} times while it ran this job."
    return failures.encode_open(Failure("WorkerVanished", message))


def promote(keys: Keys, queue: str, *, high_water: int, now_ms: str = "", limit: int = PROMOTE_LIMIT) -> Call[Promoted]:
    """Append the jobs that are due to the stream."""
    return queue_call(
        "promote",
        keys,
        queue,
        lambda reply: Promoted(*reply),
        now=now_ms,
        limit=limit,
        high_water=high_water,
        queue=queue,
        lost=PAYLOAD_LOST,
    )


def ack(keys: Keys, queue: str, done: Sequence[Acked], *, now_ms: str = "") -> Call[list[int]]:
    """Settle jobs that are done. Returns a SettleAnswer for each."""
    return queue_call(
        "ack",
        keys,
        queue,
        list,
        now=now_ms,
        alone=int(not [job for job in done if job.is_followed]),
        rows=[(job.id, job.entry, job.retention_ms, job.report, job.result) for job in done],
    )


def ack_stopped(keys: Keys, queue: str, stopped: Sequence[Stopped], *, now_ms: str = "") -> Call[list[int]]:
    """Settle jobs that ended because a cancel asked them to stop. Returns a SettleAnswer for each."""
    return queue_call(
        "ack",
        keys,
        queue,
        list,
        now=now_ms,
        alone=STOPPED,
        rows=[(job.id, job.entry, 0, b"", b"") for job in stopped],
    )


def release(keys: Keys, queue: str, again: Sequence[Released], *, now_ms: str = "") -> Call[list[int]]:
    """Settle jobs that are to run again later. Returns a SettleAnswer for each."""
    return queue_call(
        "release",
        keys,
        queue,
        list,
        now=now_ms,
        queue=queue,
        wake=keys.wake,
        rows=[(job.id, job.entry, job.delay_ms, job.envelope, job.failure) for job in again],
    )


def fail(keys: Keys, queue: str, failed: Sequence[Failed], *, now_ms: str = "") -> Call[list[int]]:
    """Settle jobs that are given up. Returns a SettleAnswer for each."""
    return queue_call(
        "fail",
        keys,
        queue,
        list,
        now=now_ms,
        alone=int(not [job for job in failed if job.is_followed]),
        rows=[(job.id, job.entry, job.envelope, job.failure) for job in failed],
    )


def hand_back(
    keys: Keys, queue: str, held: Sequence[DeliveryRef], *, unheld: bool = False, now_ms: str = ""
) -> Call[list[bool]]:
    """Give back jobs that were not started. The answer may be shorter than `held`: call again with the rest.

    `unheld`: the janitor found that no worker holds them.
    """
    rows = [(job.id, job.entry) for job in held]
    return queue_call("hand_back", keys, queue, _read_settled, now=now_ms, unheld=int(unheld), rows=rows)


def renew(keys: Keys, queue: str, consumer: str, held: Sequence[DeliveryRef]) -> Call[Renewed]:
    """Begin the leases of these jobs anew, and record the consumer as one of delayq's."""

    def parse(reply: list[Any]) -> Renewed:
        lease_ms, pending, _, asked = reply
        return Renewed(lease_ms, max(pending - len(held), 0), [(queue, job_id.decode()) for job_id in asked])

    rows = [(job.id, job.entry) for job in held]
    return queue_call("renew", keys, queue, parse, consumer=consumer, rows=rows)


def reclaim(
    keys: Keys, queue: str, *, max_recoveries: int, limit: int = RECLAIM_LIMIT, now_ms: str = ""
) -> Call[Reclaimed]:
    """Take back the jobs whose lease is over. Not repeatable: the second answer would count others."""
    return queue_call(
        "reclaim",
        keys,
        queue,
        lambda reply: Reclaimed(*reply),
        repeatable=False,
        now=now_ms,
        limit=limit,
        max_recoveries=max_recoveries,
        vanished=vanished(max_recoveries),
        queue=queue,
        wake=keys.wake,
    )


FAILED: Final = 2
"""The answer of `recover` for a job that failed."""


def recover(
    keys: Keys, queue: str, held: Sequence[DeliveryRef], *, max_recoveries: int, now_ms: str = ""
) -> Call[list[int]]:
    """Take back these jobs, whose process is known to be dead: 1 = ready again, 2 = failed, 0 = fenced, for each.

    The answer may be shorter than `held`: call again with the rest. `held` must not be empty.
    """
    return queue_call(
        "reclaim",
        keys,
        queue,
        lambda reply: [int(answer) for answer in reply],
        now=now_ms,
        limit=RECLAIM_LIMIT,
        max_recoveries=max_recoveries,
        vanished=vanished(max_recoveries),
        queue=queue,
        wake=keys.wake,
        rows=[(job.id, job.entry) for job in held],
    )


def progress(
    keys: Keys, queue: str, reports: Sequence[tuple[DeliveryRef, bytes]], *, now_ms: str = ""
) -> Call[list[bool]]:
    """Store how far running jobs are: JSON objects that are not empty."""
    rows = [(job.id, job.entry, report[:-1]) for job, report in reports]
    return queue_call("progress", keys, queue, _read_settled, now=now_ms, rows=rows)


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


def read_pending(keys: Keys, queue: str, consumer: str, *, after: str = FIRST_PENDING) -> Call[list[Delivery]]:
    """Read a page of the jobs that were delivered to a consumer and are not settled: those behind the entry `after`."""
    tail = ("STREAMS", keys.of_queue(queue, "stream"), after)
    return _read_group([queue], consumer, PENDING_PAGE, tail, repeatable=True)


def _read_group(
    queues: Sequence[str], consumer: str, limit: int, tail: tuple[str | int, ...], *, repeatable: bool
) -> Call[list[Delivery]]:
    tags = [(b":{%b}:" % queue.encode(), queue) for queue in queues]

    def parse(reply: list[Any] | None) -> list[Delivery]:
        found: list[Delivery] = []
        for key, rows in reply or []:
            queue = next(queue for tag, queue in tags if tag in key)
            found += [_read_entry(queue, entry, fields) for entry, fields in rows]
        return found

    words = ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", limit, *tail)
    return command(*words, parse=parse, repeatable=repeatable)


_OURS: Final = [b"id", b"job", b"due", b"recoveries"]


def _read_entry(queue: str, entry: bytes, fields: list[bytes] | None) -> Delivery:
    """Read one entry of the stream.

    An entry that has gone comes back without fields, one of foreign hands with odd ones. Neither may fail the reading
    of the others: it becomes a delivery without id or without envelope.
    """
    if fields is not None and fields[::2] == _OURS and fields[7].isdigit():
        _, job_id, _, envelope, _, due, _, recoveries = fields
        return Delivery(queue, str(job_id, "utf-8", "replace"), str(entry, "ascii"), envelope, int(recoveries), due)
    named = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    times = named.get(b"recoveries", b"0")
    return Delivery(
        queue=queue,
        id=named.get(b"id", b"").decode("utf-8", "replace"),
        entry=entry.decode(),
        envelope=named.get(b"job", b""),
        recoveries=int(times) if times.isdigit() else 0,
        due=named.get(b"due", b"0"),
        is_stopping=b"stop" in named,
    )


def _read_settled(reply: list[int]) -> list[bool]:
    return [answer == 1 for answer in reply]
