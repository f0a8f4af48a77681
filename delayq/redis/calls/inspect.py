"""What people and programs ask about a queue, and the switches they turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core import progress as progresses
from delayq.core import ran
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope
from delayq.core.shards import PLAIN, Layout, read_layout
from delayq.core.states import State
from delayq.core.views import JobInfo, Page, QueueStats, Silent, SilentJob, Upcoming, WorkerInfo
from delayq.redis.calls.call import Argument, Call, Command, Nature, Scope, call, number, text, whole


def get(scope: Scope, job_id: str) -> Call[JobInfo | None]:
    """Everything known about one job; None when its id is not taken."""
    return call("get", scope, [job_id], partial(_info, scope.name, job_id), nature=Nature.READS)


def _info(queue: str, job_id: str, reply: list[Any]) -> JobInfo | None:
    state = State(text(reply[0]))
    if state is State.ABSENT:
        return None
    due, at, raw, failure, result, recoveries, entry, consumer, idle, cancel_asked, told = reply[1:]
    ended = ran.decode(failure) if state is State.COMPLETED else None
    return JobInfo(
        id=job_id,
        queue=queue,
        state=state,
        raw=raw,
        envelope=read(raw),
        due_ms=number(due),
        failed_ms=number(at) if state is State.FAILED else None,
        forget_ms=number(at) if state is State.COMPLETED else None,
        failure=failures.decode(failure) if state is not State.COMPLETED else None,
        ended=ended,
        result=_result(result),
        recoveries=number(recoveries) or (ended.ran.recoveries if ended else 0),
        entry=text(entry),
        consumer=text(consumer),
        idle_ms=number(idle),
        cancel_asked_ms=number(cancel_asked),
        progress=progresses.decode(told),
    )


def _result(raw: bytes) -> Any:
    """A result, decoded; what is no JSON (somebody else wrote it) as the text it is."""
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return raw.decode("utf-8", "backslashreplace")


def read(raw: bytes) -> Envelope | None:
    """An envelope for showing; None for bytes that are none."""
    try:
        return envelopes.decode(raw)
    except BadEnvelope:
        return None


def list_jobs(scope: Scope, state: State, cursor: str, limit: int) -> Call[Page]:
    """One page of the jobs in one state."""
    return call(
        "list", scope, [state, cursor, limit], partial(_page, scope.name, state), state=state, nature=Nature.READS
    )


def _page(queue: str, state: State, reply: list[bytes]) -> Page:
    jobs = []
    for n in range(1, len(reply), 3):
        at = number(reply[n + 1])
        jobs.append(
            JobInfo(
                id=text(reply[n]),
                queue=queue,
                state=state,
                raw=reply[n + 2],
                envelope=read(reply[n + 2]),
                due_ms=at if state in (State.SCHEDULED, State.READY, State.RESERVED) else None,
                failed_ms=at if state is State.FAILED else None,
                forget_ms=at if state is State.COMPLETED else None,
            )
        )
    return Page(tuple(jobs), text(reply[0]))


def stats(scope: Scope) -> Call[QueueStats]:
    """How much of a queue is in which state."""
    return call("stats", scope, [scope.now], partial(_stats, scope.name), nature=Nature.READS)


def _stats(queue: str, reply: list[Any]) -> QueueStats:
    scheduled, ready, reserved, failed, completed, paused, overdue, lease, tick, now = (int(n) for n in reply[:10])
    names = [text(name) for name in reply[10::2]]
    return QueueStats(
        queue=queue,
        scheduled=scheduled,
        ready=ready,
        reserved=reserved,
        failed=failed,
        completed=completed,
        paused_until_ms=None if paused < 0 else paused,
        overdue_oldest_ms=overdue,
        lease_ms=lease,
        mover_tick_ms=tick,
        now_ms=now,
        counters=dict(zip(names, (int(n) for n in reply[11::2]), strict=True)),
    )


_KEPT: Final = (
    "paused_until_ms", "lease_ms", "mover_tick",
    "scheduled_total", "promoted_total", "acked_total", "released_total", "failed_total", "cancelled_total",
    "reclaimed_total", "handed_back_total",
)  # fmt: skip


def glance(scope: Scope) -> tuple[Command[int], Command[list[int | None]]]:
    """Two commands that cost far less than `stats`: how many keys hold jobs, and what the queue keeps for itself.

    With no such key they say all that `stats` does; see `empty_stats`.
    """
    keys = scope.keys
    holding = (keys.of("scheduled"), keys.stream, keys.of("failed"), keys.of("completed"))
    return Command(("EXISTS", *holding), int, True), Command(("HMGET", keys.meta, *_KEPT), _numbers, True)


def empty_stats(queue: str, kept: Sequence[int | None], now_ms: int) -> QueueStats:
    """Return the counts of a queue that holds no job, from the second answer of `glance`."""
    paused, lease, tick, *totals = kept
    if paused and paused <= now_ms:
        paused = None
    counters = {name: total or 0 for name, total in zip(_KEPT[3:], totals, strict=True)}
    return QueueStats(queue, 0, 0, 0, 0, 0, paused, 0, lease or 0, tick or 0, now_ms, counters)


def _numbers(reply: Sequence[bytes | None]) -> list[int | None]:
    return [None if value is None else whole(value) for value in reply]


SILENT_SHOWN: Final = 10
"""Jobs that `silent` names."""


def silent(scope: Scope) -> Call[Silent]:
    """Delivered jobs whose holder has been silent for longer than the queue's lease."""
    return call("silent", scope, [SILENT_SHOWN], _silent, nature=Nature.READS)


def _silent(reply: list[Any]) -> Silent:
    rows = zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
    return Silent(int(reply[0]), tuple(SilentJob(text(job), text(worker), int(ms)) for job, worker, ms in rows))


def upcoming(scope: Scope, span_ms: int, spans: int) -> Call[Upcoming]:
    """A histogram of due times."""
    return call(
        "upcoming", scope, [scope.now, span_ms, spans], partial(_upcoming, scope.name, span_ms), nature=Nature.READS
    )


def _upcoming(queue: str, span_ms: int, reply: list[int]) -> Upcoming:
    return Upcoming(queue, reply[0], span_ms, reply[1], tuple(reply[2:-1]), reply[-1])


def worker(name: str, reply: bytes | None, *, now_ms: int | None = None) -> WorkerInfo | None:
    """What a worker says of itself; None when its word has expired. Somebody else's words are kept out.

    With `now_ms`, the server's time, `for_ms` of each running job is as of now; the worker's own is as old as its
    report.
    """
    try:
        said = msgspec.json.decode(reply or b"null")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    queues = said.pop("queues", None)
    names = tuple(map(str, queues)) if isinstance(queues, list) else ()
    running = said.get("running")
    for job in running if now_ms is not None and isinstance(running, list) else ():
        if isinstance(job, dict) and isinstance(job.get("since_ms"), int):
            job["for_ms"] = max(0, now_ms - job["since_ms"])
    return WorkerInfo(name, names, {key: value for key, value in said.items() if key != "name"})


def pause(scope: Scope, for_ms: int) -> Call[int]:
    """Pause for a time (0 = until resumed); answers until when, in epoch ms."""
    return _pause(scope, for_ms)


def resume(scope: Scope) -> Call[int]:
    """Undo a pause."""
    return _pause(scope, -1)


def _pause(scope: Scope, for_ms: int) -> Call[int]:
    args: list[Argument] = [scope.now, scope.queue, scope.wake, for_ms, scope.options.lease_ms, scope.switch]
    return call("pause", scope, args, int)


def configure(scope: Scope, lease_ms: int | None, durability: str = "") -> Call[int]:
    """Set what a queue keeps for itself ('' = leave as it is); answers the lease in force."""
    wanted = "" if lease_ms is None else lease_ms
    return call("configure", scope, [wanted, scope.options.lease_ms, durability, scope.queue, scope.switch], int)


class LaidOut(NamedTuple):
    """What a shard knows: the layout, and the queue's lease and pause as its `meta` holds them ('' = none)."""

    layout: Layout
    lease_ms: str
    paused: str
    readable: bool = True
    """False: what stands there is no layout, and `layout` only what it is taken for."""


NO_WORD: Final = LaidOut(PLAIN, "", "")


def lay_out(scope: Scope, layout: Layout, like: LaidOut, *, instead: bool = False) -> Call[LaidOut]:
    """Tell a shard the layout of its queue; it takes a newer one. With `instead` only in the place of `like`."""
    instead_of = str(like.layout) if instead else ""
    args = [str(layout), instead_of, like.lease_ms, like.paused, scope.queue, scope.switch]
    return call("lay_out", scope, args, _laid_out)


def _laid_out(reply: list[bytes]) -> LaidOut:
    written, lease, paused = map(text, reply)
    layout = read_layout(written)
    return LaidOut(layout, lease, paused, str(layout) == written)


class Holds(NamedTuple):
    """What a shard holds."""

    scheduled: int
    in_stream: int
    failed: int
    completed: int
    others: int
    follow_ups: int
    aside: int

    def __str__(self) -> str:
        """Such as '3 scheduled, 1 failed'; '' when it holds nothing."""
        words = ("scheduled", "ready or running", "failed", "completed", "damaged", "follow-ups to send", "set aside")
        return ", ".join(f"{count} {word}" for word, count in zip(words, self, strict=True) if count)


def remove(scope: Scope, *, look: bool = False) -> Call[Holds]:
    """Forget a shard that holds nothing; with `look` only count what it holds."""
    return call("remove", scope, [int(look)], lambda reply: Holds(*map(int, reply)))


def clear(scope: Scope, limit: int = 500) -> Call[int]:
    """Drop some of what waits; answers how many, 0 when nothing waits any more."""
    return call("clear", scope, [limit, scope.queue, scope.wake], int)
