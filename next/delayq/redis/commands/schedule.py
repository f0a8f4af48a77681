"""Calls of producers: schedule, cancel, stats."""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from delayq.core.job_spec import NewJob
from delayq.core.views import CancelAnswer, OnConflict, QueueStats, State
from delayq.redis.commands.call import Call, command, script_call
from delayq.redis.keys import GROUP, Keys
from delayq.redis.scripts import load

HIGH_WATER: Final = 100_000
LEASE_MS: Final = 30_000
ONCE_MS: Final = 60_000
MAX_JOBS: Final = 250
"""Jobs in one call of `schedule`: more would hold the server for longer than other clients like to wait."""

ANSWER_WHEN_TAKEN: Final[dict[OnConflict, str]] = {"keep": "kept", "error": "conflict"}


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The answer for one job: `created`, `kept` or `conflict`, and where the job is now."""

    answer: str
    state: State
    due_ms: int | None


def schedule(
    keys: Keys,
    queue: str,
    jobs: Sequence[NewJob],
    *,
    on_conflict: OnConflict = "keep",
    token: str = "",
    now_ms: str = "",
) -> Call[list[Placed]]:
    """Store new jobs of one queue, which `list_queue` has listed before. The answers are in the order of the jobs.

    `token` names this call. With one, the first answer is kept for a minute and repeated when the call is sent again; a
    job that may be over by then needs it, because a second call would create it anew.
    """
    script = load("schedule")
    *places, once = keys.of_script(script, queue)
    return script_call(
        script,
        (*places, f"{once}:{token}"),
        _read_schedule,
        repeatable=True,
        now=now_ms,
        if_taken=ANSWER_WHEN_TAKEN[on_conflict],
        queue=queue,
        wake=keys.wake,
        high_water=HIGH_WATER,
        lease_ms=LEASE_MS,
        once_ms=ONCE_MS if token else 0,
        rows=[(job.id, job.envelope, job.when) for job in jobs],
    )


def _read_schedule(reply: list[Any]) -> list[Placed]:
    answers = iter(reply[1:])
    return [
        Placed(answer.decode(), state.decode(), int(due) if due else None)
        for answer, state, due in zip(answers, answers, answers, strict=True)
    ]


def cancel(keys: Keys, queue: str, job_id: str, *, running: bool = False, now_ms: str = "") -> Call[CancelAnswer]:
    """Cancel a job. Not repeatable: the second call would answer `unknown` for a job that the first one cancelled."""
    script = load("cancel")
    return script_call(
        script,
        keys.of_script(script, queue),
        lambda reply: cast(CancelAnswer, reply.decode()),
        repeatable=False,
        now=now_ms,
        id=job_id,
        running=int(running),
    )


def list_queue(keys: Keys, queue: str) -> Call[bool]:
    """Add a queue to the list of all queues, where movers and janitors find it. The answer says whether it is new."""
    return command("SADD", keys.queues, queue, parse=bool)


def list_queues(keys: Keys) -> Call[list[str]]:
    """List the names of all queues, sorted."""
    return command("SMEMBERS", keys.queues, parse=lambda reply: sorted(name.decode() for name in reply))


def stats(keys: Keys, queue: str) -> list[Call[int]]:
    """Count the jobs of a queue: scheduled, in the stream, delivered, failed, completed; for `read_stats`."""
    return [
        command("ZCARD", keys.of_queue(queue, "scheduled"), parse=int),
        command("XLEN", keys.of_queue(queue, "stream"), parse=int),
        command("XINFO", "GROUPS", keys.of_queue(queue, "stream"), parse=_read_delivered),
        command("ZCARD", keys.of_queue(queue, "failed"), parse=int),
        command("ZCARD", keys.of_queue(queue, "completed"), parse=int),
    ]


def read_stats(queue: str, counts: list[int]) -> QueueStats:
    """Put the counts that `stats` asked for together."""
    scheduled, in_stream, delivered, failed, completed = counts
    return QueueStats(queue, scheduled, in_stream - delivered, delivered, failed, completed)


def _read_delivered(groups: list[list[Any]]) -> int:
    for group in groups:
        fields = dict(zip(group[::2], group[1::2], strict=True))
        if fields[b"name"] == GROUP.encode():
            return int(fields[b"pending"])
    return 0
