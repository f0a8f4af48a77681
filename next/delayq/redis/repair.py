"""Repairs and cleans up one queue.

Each run has these steps:

1. `tidy` creates missing keys and counts the jobs.
2. `outside_acks` finds jobs that plain consumers acknowledged with XACK.
3. `prune` deletes jobs that were kept long enough, and ended windows of unique keys.
4. `consumer_remove` removes the consumers of dead children.

If the counts of step 1 do not match, the data is damaged, which no script can cause. Only in this case, `outside_acks`
looks at all stream entries. Entries that are not the current entry of a job go to `bury`, which moves an entry to
`failed`, deletes a surplus copy of a job, or gives the entry back to its job if only the row in `entries` was lost.
Then `mend` checks all ids.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Literal

from delayq.backends.values import Acked, DeliveryRef, Repaired
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import UnreadableEnvelope
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.redis.calls import delivery, upkeep
from delayq.redis.calls.call import read, value_of
from delayq.redis.calls.upkeep import OutsideAck, Tidied
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import GROUP, Keys

logger: Final = logging.getLogger("delayq.loops")

IDLE_LEASES: Final = 3
MIN_IDLE_MS: Final = 60_000
"""A consumer without pending entries counts as dead if it was idle for three leases, and for at least one minute."""

SCAN_COUNT: Final = 250

_SETS: Final = ("scheduled", "failed", "completed")
_ROLES: Final = ("jobs", "entries", *_SETS)

_DAMAGE: Final = {
    "again": "jobs without a known worker, ready again (a job that still runs may run twice)",
    "garbage": "stream entries without a job, moved to the failed jobs",
    "restored": "payloads restored from the stream",
    "appended": "jobs without a stream entry, ready again (a job that still runs may run twice)",
    "scheduled": "jobs without a state, scheduled again",
    "completed": "jobs without a state but with a result, completed",
    "single": "jobs in several states, reduced to one state",
    "lost": "jobs with a lost payload, failed (completed ones stay completed)",
    "dropped": "ids without a job, deleted",
}
"""Verdicts of outside_acks.lua and words of mend.lua that mean a repair, with texts for people."""

GARBAGE: Final = failures.encode(Failure("NoJob", "This stream entry is not a delayq job."))


async def repair_queue(
    executor: Executor, keys: Keys, queue: str, options: Options, counted: dict[str, int] | None = None
) -> Repaired:
    """Repair and clean up one queue, and return the numbers of affected jobs.

    `counted` keeps the sum of the counters of each queue for the next run. If the sum has fallen, the server lost data
    or the queue was removed, and a warning is logged. A repair of damage is logged in one warning, with the number of
    jobs for each kind of damage.
    """
    tidied = await executor.run(upkeep.tidy(keys, queue, lease_ms=options.lease_ms))
    if counted is not None:
        _notice_loss(queue, counted.get(queue, 0), tidied.counted)
        counted[queue] = tidied.counted
    scope: Literal["delivered", "all"] = "all" if tidied.is_damaged else "delivered"
    closed, redelivered, buried = await _settle_outside_acks(executor, keys, queue, scope)
    mended = await _mend(executor, keys, queue) if tidied.is_damaged else Counter()
    warn_of_repair(queue, tidied, {"again": redelivered, "garbage": buried, **mended})
    pruned = await executor.run(
        upkeep.prune(
            keys,
            queue,
            keep_failed_ms=options.keep_failed_ms,
            windows=await _windows(executor, keys, queue) if tidied.unique > tidied.locks else (),
        )
    )
    await _remove_consumers(executor, keys, queue, tidied)
    return Repaired(closed, redelivered, buried, mended.total(), pruned.completed + pruned.failed)


def warn_of_repair(queue: str, tidied: Tidied, counts: Mapping[str, int]) -> None:
    """If a queue was damaged, log that it was repaired. `counts`: the number of jobs for each word of `_DAMAGE`.

    If several processes call `tidy`, only the process whose call repaired the consumer group logs the repair of the
    group.
    """
    parts = ["consumer group missing or damaged, set to the end of the stream"] if tidied.regrouped else []
    parts += [f"{text}: {counts[word]:,}" for word, text in _DAMAGE.items() if counts.get(word)]
    if parts:
        logger.warning(
            "queue %s was damaged, and was repaired: %s. Another program changed its keys, or Redis lost data.",
            queue_of(queue),
            "; ".join(parts),
        )


def _notice_loss(queue: str, before: int, now: int) -> None:
    if now < before:
        logger.warning(
            "queue %s was reset: the sum of its counters fell from %d to %d. Unless someone removed the queue, the "
            "server lost jobs: run Redis with appendonly yes.",
            queue_of(queue),
            before,
            now,
        )


async def _settle_outside_acks(
    executor: Executor, keys: Keys, queue: str, scope: Literal["delivered", "all"]
) -> tuple[int, int, int]:
    """Settle the jobs that `outside_acks` finds, page by page.

    Return the numbers of acknowledged, redelivered and buried jobs.
    """
    counts = {"acked": 0, "again": 0, "garbage": 0}
    after, marks = upkeep.FROM_START, ""
    while after:
        page = await executor.run(upkeep.outside_acks(keys, queue, after=after, marks=marks, scope=scope))
        for verdict in counts:
            found = [row for row in page.found if row.verdict == verdict]
            if found:
                await _settle(executor, keys, queue, verdict, found)
                counts[verdict] += len(found)
        # Each later page gets the marks of the first page, so that the script can see on the last page whether a
        # consumer has vanished since the first page.
        after, marks = page.after, marks or page.marks
    return counts["acked"], counts["again"], counts["garbage"]


async def _settle(executor: Executor, keys: Keys, queue: str, verdict: str, rows: Sequence[OutsideAck]) -> None:
    if verdict == "acked":
        await executor.run(delivery.ack(keys, queue, await _acked(executor, keys, queue, rows)))
        return
    left = list(rows)
    while left:
        if verdict == "again":
            held = [DeliveryRef(queue, row.id, row.entry) for row in left]
            looked: Sequence[Any] = await executor.run(delivery.hand_back(keys, queue, held, unheld=True))
        else:
            looked = await executor.run(upkeep.bury(keys, queue, [(row.entry, GARBAGE) for row in left]))
        left = left[max(len(looked), 1) :]


async def _acked(executor: Executor, keys: Keys, queue: str, rows: Sequence[OutsideAck]) -> list[Acked]:
    """Return settlements for jobs that plain consumers acknowledged, with the retention of their envelopes."""
    ids = [row.id for row in rows]
    raws = await executor.run(read("HMGET", keys.of_queue(queue, "jobs"), *ids, parse=list))
    # `is_followed` is always True, so that the script itself checks the envelopes for follow-up jobs.
    return [
        Acked(queue, row.id, row.entry, _retention_ms(raw), b"", is_followed=True)
        for row, raw in zip(rows, raws, strict=True)
    ]


def _retention_ms(raw: bytes | None) -> int:
    try:
        return envelopes.decode(raw or b"").retention_ms or 0
    except UnreadableEnvelope:
        return 0


async def _mend(executor: Executor, keys: Keys, queue: str) -> Counter[str]:
    """Check all ids in all keys of the queue, and return the number of repaired jobs for each word of mend.lua."""
    mended: Counter[str] = Counter()
    for role in _ROLES:
        async for ids in _scan(executor, keys.of_queue(queue, role), "ZSCAN" if role in _SETS else "HSCAN"):
            left = ids
            while left:
                words = await executor.run(upkeep.mend(keys, queue, left))
                mended.update(word for word in words if word != "fine")
                left = left[max(len(words), 1) :]
    return mended


async def _windows(executor: Executor, keys: Keys, queue: str) -> list[bytes]:
    """Return up to PRUNE_LIMIT windows of unique keys, for one call of `prune`. The name of a window has a dot."""
    windows: list[bytes] = []
    async for names in _scan(executor, keys.of_queue(queue, "unique"), "HSCAN"):
        windows += [name for name in names if b"." in name]
        if len(windows) >= upkeep.PRUNE_LIMIT:
            break
    return windows[: upkeep.PRUNE_LIMIT]


async def _remove_consumers(executor: Executor, keys: Keys, queue: str, tidied: Tidied) -> None:
    """Remove dead consumers. The script checks each consumer again before it removes the consumer."""
    idle_ms = max(IDLE_LEASES * tidied.lease_ms, MIN_IDLE_MS)
    rows: list[list[Any]] = await executor.run(
        read("XINFO", "CONSUMERS", keys.of_queue(queue, "stream"), GROUP, parse=list)
    )
    gone = []
    for row in rows:
        info = dict(zip(row[::2], row[1::2], strict=True))
        name = info[b"name"].decode("utf-8", "replace")
        if name.startswith("dq:") and info[b"pending"] == 0 and info[b"idle"] >= idle_ms:
            gone.append(upkeep.remove_consumer(keys, queue, name, idle_ms=idle_ms))
    for outcome in await executor.run_all(gone):
        value_of(outcome)


async def _scan(executor: Executor, key: str, verb: Literal["HSCAN", "ZSCAN"]) -> AsyncIterator[list[bytes]]:
    """Yield the names in a hash or sorted set, page by page. A name may occur twice."""
    cursor = "0"
    while True:
        reply = await executor.run(read(verb, key, cursor, "COUNT", SCAN_COUNT, parse=list))
        cursor = reply[0].decode()
        yield reply[1][::2]
        if cursor == "0":
            return
