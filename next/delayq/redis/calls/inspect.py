"""Read-only calls: one job, pages of jobs, counts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import UnreadableEnvelope
from delayq.core.names import is_queue
from delayq.core.shards import queue_of
from delayq.core.states import State
from delayq.core.times import format_instant
from delayq.core.views import DayCounts, JobInfo, Page, QueueStats
from delayq.redis.calls.call import Call, number, queue_call, read, script_call
from delayq.redis.keys import Keys
from delayq.redis.scripts import load

MAX_PAGE: Final = 500
DAYS_KEPT: Final = 90
"""Number of days in the history of a queue; see activity_record.lua."""

_DAY_MS: Final = 86_400_000

_IN_SETS: Final = ("scheduled", "failed", "completed")


def get(keys: Keys, queue: str, job_id: str) -> Call[JobInfo | None]:
    """Read all facts about one job. The call returns None if the id is unknown."""
    return queue_call("get", keys, queue, lambda reply: _read_job(queue, job_id, reply), reads_only=True, id=job_id)


class Row(NamedTuple):
    """One job, as list.lua returns it. `entry`: the id of the stream entry, or b''.

    `time`: the due time, or the time of failure of a failed job, or the time at which a completed job is deleted, in
    epoch ms.
    """

    id: bytes
    time: bytes
    raw: bytes
    entry: bytes


class Rows(NamedTuple):
    """One page of list.lua. `cursor`: the cursor of the next page, or b'' if this is the last page."""

    cursor: bytes
    rows: list[Row]


def list_rows(
    keys: Keys, queue: str, state: State, *, cursor: str | bytes, limit: int, newest_first: bool = False
) -> Call[Rows]:
    """Read one page of the jobs in one state, without decoding their envelopes."""
    script = load("list")
    in_set = keys.of_queue(queue, state if state in _IN_SETS else "scheduled")
    _, *others = keys.of_script(script, queue)

    def parse(reply: list[bytes]) -> Rows:
        next_cursor, *rest = reply
        columns = iter(rest)
        return Rows(next_cursor, [Row(*row) for row in zip(columns, columns, columns, columns, strict=True)])

    return script_call(
        script,
        (in_set, *others),
        parse,
        repeatable=True,
        reads_only=True,
        state=state,
        after=cursor,
        limit=limit,
        newest=int(newest_first),
    )


def list_jobs(keys: Keys, queue: str, state: State, *, cursor: str, limit: int) -> Call[Page]:
    """Read one page of the jobs in one state, earliest first."""
    call = list_rows(keys, queue, state, cursor=cursor, limit=limit)

    def parse(reply: list[bytes]) -> Page:
        next_cursor, rows = call.parse(reply)
        return Page([job_of(queue, state, row) for row in rows], next_cursor.decode())

    return Call(call.words, parse, call.repeatable, call.script, call.reads_only)


def failures_of(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Read the failure records of jobs as JSON."""
    return read("HMGET", keys.of_queue(queue, "errors"), *ids, parse=list)


def stats(keys: Keys, queue: str, *, now_ms: str = "") -> Call[QueueStats]:
    """Count the jobs of a queue in each state."""
    return queue_call("stats", keys, queue, lambda reply: _read_stats(queue, reply), reads_only=True, now=now_ms)


def count_due(keys: Keys, queue: str, bounds_ms: Sequence[int]) -> list[Call[int]]:
    """Count the scheduled jobs by due time: before the first bound, between bounds, and from the last bound on."""
    scheduled = keys.of_queue(queue, "scheduled")
    edges = ["-inf", *[str(bound) for bound in bounds_ms], "+inf"]
    return [
        read("ZCOUNT", scheduled, low, f"({high}" if high != "+inf" else high, parse=int)
        for low, high in pairwise(edges)
    ]


def history(keys: Keys, queue: str, *, days: int, now_ms: int) -> Call[list[DayCounts]]:
    """Read the counts of each of the last days, the oldest day first. Unreadable rows are skipped."""
    today = now_ms // _DAY_MS
    first = today - days + 1

    def parse(reply: list[bytes]) -> list[DayCounts]:
        rows = [row for row in map(_json, reply[1::2]) if isinstance(row, dict)]
        by_day = {row["day"]: row for row in rows if isinstance(row.get("day"), int)}
        return [_day_counts(day, by_day[day]) for day in range(first, today + 1) if day in by_day]

    return read("HGETALL", keys.of_queue(queue, "history"), parse=parse)


def list_queues(keys: Keys) -> Call[list[str]]:
    """Read the sorted names of all queues. Invalid names, which other programs may have added, are skipped."""

    def parse(reply: list[bytes]) -> list[str]:
        names = [name.decode("utf-8", "replace") for name in reply]
        return sorted(name for name in names if is_queue(name))

    return read("SMEMBERS", keys.queues, parse=parse)


def count_jobs(keys: Keys, queue: str) -> Call[int]:
    """Count the jobs of a queue in all states."""
    return read("HLEN", keys.of_queue(queue, "jobs"), parse=int)


def has_job(keys: Keys, queue: str, job_id: str) -> Call[bool]:
    """Read whether a queue has a job, in any state."""
    return read("HEXISTS", keys.of_queue(queue, "jobs"), job_id, parse=bool)


def owner_of_key(keys: Keys, shard: str, digest: str) -> Call[str]:
    """Read the id of the job that has taken a unique key, or ''. A job that has ended no longer counts as the owner."""
    return read("HGET", keys.of_queue(shard, "unique"), digest, parse=lambda reply: (reply or b"").decode())


def server_time_ms() -> Call[int]:
    """Read the clock of the server, in epoch ms."""
    return read("TIME", parse=lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def _read_job(queue: str, job_id: str, reply: list[bytes]) -> JobInfo | None:
    if reply[0] == b"absent":
        return None
    state: State = reply[0].decode()  # type: ignore[assignment]  # the manual of get.lua lists the states
    due, ended_at, raw, failure, result, recoveries, entry, consumer, idle, asked, progress = reply[1:]
    return JobInfo(
        id=job_id,
        queue=queue_of(queue),
        state=state,
        raw=raw,
        envelope=_envelope(raw),
        due_ms=number(due),
        failed_ms=number(ended_at) if state == "failed" else None,
        forget_ms=number(ended_at) if state == "completed" else None,
        failure=failures.decode(failure) if state != "completed" else None,
        stored_result=_json(result),
        recoveries=number(recoveries) or 0,
        entry=entry.decode(),
        consumer=consumer.decode(),
        idle_ms=number(idle),
        cancel_asked_ms=number(asked),
        progress=_json(progress),
    )


def job_of(queue: str, state: State, row: Row) -> JobInfo:
    """Return the job of a row."""
    return JobInfo(
        id=row.id.decode("utf-8", "replace"),
        queue=queue_of(queue),
        state=state,
        raw=row.raw,
        envelope=_envelope(row.raw),
        due_ms=number(row.time) if state not in ("failed", "completed") else None,
        failed_ms=number(row.time) if state == "failed" else None,
        forget_ms=number(row.time) if state == "completed" else None,
        entry=row.entry.decode(),
    )


def _envelope(raw: bytes) -> envelopes.Envelope | None:
    try:
        return envelopes.decode(raw)
    except UnreadableEnvelope:
        return None


def _json(raw: bytes) -> Any:
    """Decode a JSON value that a worker has written. Return text that is not JSON as it is, and None for b''."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return raw.decode("utf-8", "replace")


def _day_counts(day: int, row: dict[str, Any]) -> DayCounts:
    counters = {name: int(n) for name, n in row.items() if name != "day" and isinstance(n, int | float)}
    return DayCounts(format_instant(day * _DAY_MS)[:10], counters)


def _read_stats(queue: str, reply: list[Any]) -> QueueStats:
    scheduled, ready, reserved, failed, completed, paused_until_ms, overdue_ms, lease_ms, tick_ms, now_ms = reply[:10]
    pairs = zip(reply[10::2], reply[11::2], strict=True)
    counters = {name.decode().removesuffix("_total"): count for name, count in pairs}
    return QueueStats(
        queue=queue_of(queue),
        scheduled=scheduled,
        ready=ready,
        reserved=reserved,
        failed=failed,
        completed=completed,
        paused_until_ms=None if paused_until_ms < 0 else paused_until_ms,
        overdue_oldest_ms=overdue_ms,
        lease_ms=lease_ms,
        mover_tick_ms=tick_ms,
        now_ms=now_ms,
        counters=counters,
    )
