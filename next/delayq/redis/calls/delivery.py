"""Calls of workers, movers and janitors that move jobs from one state to another."""

from collections.abc import Sequence
from typing import Any, Final

from delayq.backends.values import Acked, Delivery, DeliveryRef, Failed, Promoted, Reclaimed, Released, Renewed, Stopped
from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.redis.calls.call import Call, command, queue_call
from delayq.redis.calls.shards import shard_count
from delayq.redis.keys import GROUP, Keys

PROMOTE_LIMIT: Final = 500
RECLAIM_LIMIT: Final = 250
MAX_HAND_BACK: Final = 100
"""One call of `hand_back` handles at most this many rows."""

PENDING_PAGE: Final = 500
"""Number of deliveries in one page of `read_pending`. A page with fewer deliveries is the last page."""

FIRST_PENDING: Final = "0"
"""The value of `after` for the first page of `read_pending`."""

PAYLOAD_LOST: Final = failures.encode_open(Failure("PayloadLost", "The payload of this job was lost in Redis."))


STOPPED: Final = 2
"""The value of the argument `alone` of ack.lua for jobs that were cancelled while they ran."""


def vanished(max_recoveries: int) -> bytes:
    """Return the failure of a job whose workers vanished too many times: JSON without the closing brace."""
    message = f"The worker vanished {max_recoveries + 1} times while it had this job."
    return failures.encode_open(Failure("WorkerVanished", message))


def promote(keys: Keys, queue: str, *, high_water: int, now_ms: str = "", limit: int = PROMOTE_LIMIT) -> Call[Promoted]:
    """Append due jobs to the stream."""
    return queue_call(
        "promote",
        keys,
        queue,
        _promoted,
        now=now_ms,
        limit=limit,
        high_water=high_water,
        queue=queue,
        lost=PAYLOAD_LOST,
    )


def _promoted(reply: Sequence[Any]) -> Promoted:
    promoted, lost, wait_us, owed, shards = reply
    return Promoted(promoted, lost, wait_us, owed, shard_count(shards))


def ack(keys: Keys, queue: str, done: Sequence[Acked], *, now_ms: str = "") -> Call[list[int]]:
    """Settle finished jobs. The call returns a SettleAnswer for each job."""
    return queue_call(
        "ack",
        keys,
        queue,
        list,
        now=now_ms,
        alone=int(not [job for job in done if job.is_followed]),
        rows=[(job.id, job.entry, job.retention_ms, job.report, job.result) for job in done],
    )


def rewrite(keys: Keys, queue: str, done: Sequence[Acked]) -> Call[list[int]]:
    """Replace the envelopes of finished jobs, before `ack` settles them. For each job: 1 = replaced, 0 = fenced."""
    rows = [(job.id, job.entry, job.envelope) for job in done]
    return queue_call("rewrite", keys, queue, list, rows=rows)


def ack_stopped(keys: Keys, queue: str, stopped: Sequence[Stopped], *, now_ms: str = "") -> Call[list[int]]:
    """Settle jobs that ended because a stop request asked them to. The call returns a SettleAnswer for each job."""
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
    """Settle jobs that run again later. The call returns a SettleAnswer for each job."""
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
    """Settle jobs that have failed. The call returns a SettleAnswer for each job."""
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
    """Hand back jobs that were not started. The call returns True for each job that was handed back.

    The list may be shorter than `held`. Then call again with the remaining jobs. `unheld`: the caller is the janitor,
    and no worker has the jobs.
    """
    rows = [(job.id, job.entry) for job in held]
    return queue_call("hand_back", keys, queue, _read_settled, now=now_ms, unheld=int(unheld), rows=rows)


def renew(keys: Keys, queue: str, consumer: str, held: Sequence[DeliveryRef]) -> Call[Renewed]:
    """Renew the leases of these jobs, and record that the consumer belongs to delayq."""

    def parse(reply: list[Any]) -> Renewed:
        lease_ms, pending, _, asked = reply
        return Renewed(lease_ms, max(pending - len(held), 0), [(queue, job_id.decode()) for job_id in asked])

    rows = [(job.id, job.entry) for job in held]
    return queue_call("renew", keys, queue, parse, consumer=consumer, rows=rows)


def reclaim(
    keys: Keys, queue: str, *, max_recoveries: int, limit: int = RECLAIM_LIMIT, now_ms: str = ""
) -> Call[Reclaimed]:
    """Redeliver the jobs whose lease has expired.

    The call is not repeatable, because the second reply would not count the jobs of the first one.
    """
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
"""The answer of `recover` for a job that failed, because its workers vanished too many times."""


def recover(
    keys: Keys, queue: str, held: Sequence[DeliveryRef], *, max_recoveries: int, now_ms: str = ""
) -> Call[list[int]]:
    """Redeliver these jobs of a dead process. The call returns a number for each job.

    1 = ready, 2 = failed, 0 = nothing changed; for the reasons, see reclaim.lua.

    The list may be shorter than `held`. Then call again with the remaining jobs. `held` must not be empty.
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
    """Store the progress of running jobs. Each report is a JSON object that is not empty."""
    rows = [(job.id, job.entry, report[:-1]) for job, report in reports]
    return queue_call("progress", keys, queue, _read_settled, now=now_ms, rows=rows)


def unlock(keys: Keys, job: DeliveryRef, digest: str) -> Call[bool]:
    """Free the unique key of a delivered job, if the job owns it. The call returns False for an invalid delivery."""
    return queue_call(
        "unlock", keys, job.queue, lambda reply: reply != b"fenced", id=job.id, entry=job.entry, digest=digest
    )


def read_new(keys: Keys, queue: str, consumer: str, limit: int) -> Call[list[Delivery]]:
    """Read up to `limit` undelivered jobs.

    The call is not repeatable, because a second call would deliver other jobs. If the reply is lost, the delivered jobs
    stay in the pending list of the consumer, where `read_pending` finds them.
    """
    tail = ("STREAMS", keys.of_queue(queue, "stream"), ">")
    return _read_group([queue], consumer, limit, tail, repeatable=False)


def wait_new(keys: Keys, queues: Sequence[str], consumer: str, timeout_ms: int) -> Call[list[Delivery]]:
    """Wait up to `timeout_ms` milliseconds for one job from any of the queues."""
    streams = [keys.of_queue(queue, "stream") for queue in queues]
    tail: tuple[str | int, ...] = ("BLOCK", timeout_ms, "STREAMS", *streams, *[">" for _ in streams])
    return _read_group(queues, consumer, 1, tail, repeatable=False)


def read_pending(keys: Keys, queue: str, consumer: str, *, after: str = FIRST_PENDING) -> Call[list[Delivery]]:
    """Read a page of the jobs that were delivered to a consumer and are not settled.

    The page starts after the entry `after`.
    """
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

    A deleted entry has no fields, and an entry of another program may have any fields. Such an entry becomes a delivery
    without id or envelope, so that the other entries can still be read.
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
