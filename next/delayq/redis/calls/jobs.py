"""Calls that change jobs: schedule, replace, cancel, reschedule, run_now, retry, forget."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.core.errors import BackendError
from delayq.core.job_spec import NewJob
from delayq.core.states import Answer, State
from delayq.redis.calls.call import Call, queue_call
from delayq.redis.keys import Keys

ONCE_MS: Final = 60_000
"""How long the answer to a call with a token is kept for a second sending of the same call."""

SHARDS: Final = 1


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The answer for one job, and where the job in its place is now. `id` differs when another job owns its lock."""

    answer: Answer
    state: State
    due_ms: int | None
    id: str


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The answer of an operation on one job: a word, and the new due time, if there is one."""

    answer: Answer
    due_ms: int | None = None


class RetryAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer of `retry`. `owner` is the job that holds the unique key, with `conflict`."""

    answer: Literal["scheduled", "changed", "conflict", "refused", "unknown"]
    due_ms: int | None
    owner: str


def schedule(
    keys: Keys,
    queue: str,
    jobs: Sequence[NewJob],
    *,
    taken: Literal["kept", "conflict"],
    high_water: int,
    lease_ms: int,
    token: str = "",
    once_ms: int = ONCE_MS,
    now_ms: str = "",
) -> Call[list[Placed]]:
    """Store new jobs of one queue, which is listed already. The answers are in the order of the jobs.

    `token` names this call. With one, the first answer is kept for `once_ms` and repeated when the call is sent again;
    a job that may be over by then needs it, because a second call would create it anew.
    """
    return queue_call(
        "schedule",
        keys,
        queue,
        lambda reply: _read_scheduled(reply, jobs),
        token=token,
        now=now_ms,
        taken=taken,
        queue=queue,
        wake=keys.wake,
        high_water=high_water,
        lease_ms=lease_ms,
        once_ms=once_ms if token else 0,
        shards=SHARDS,
        rows=[(job.id, job.envelope, job.when, job.lock) for job in jobs],
    )


def replace(
    keys: Keys,
    queue: str,
    jobs: Sequence[NewJob],
    *,
    word: Literal["replaced", "postponed"],
    lease_ms: int,
    token: str,
    now_ms: str = "",
) -> Call[list[Placed]]:
    """Store jobs in the place of those that have their ids, or give these a new due time."""
    return queue_call(
        "replace",
        keys,
        queue,
        _read_placed,
        token=token,
        now=now_ms,
        word=word,
        queue=queue,
        wake=keys.wake,
        lease_ms=lease_ms,
        once_ms=ONCE_MS,
        shards=SHARDS,
        rows=[(job.id, job.envelope, job.when, job.lock) for job in jobs],
    )


def cancel(
    keys: Keys,
    queue: str,
    job_id: str,
    *,
    running: bool = False,
    failure: bytes = b"",
    token: str,
    now_ms: str = "",
) -> Call[Answer]:
    """Cancel a job that no worker was given; with a `failure` (JSON without its closing brace) archive it instead."""
    return queue_call(
        "cancel",
        keys,
        queue,
        lambda reply: _word(reply[0]),
        token=token,
        now=now_ms,
        id=job_id,
        running=int(running),
        once_ms=ONCE_MS,
        queue=queue,
        hint=keys.cancel,
        only="",
        wake=keys.wake,
        failure=failure,
    )


def reschedule(keys: Keys, queue: str, job_id: str, when: str, *, now_ms: str = "") -> Call[Moved]:
    """Give a waiting job a new due time."""
    return queue_call(
        "reschedule", keys, queue, _read_moved, now=now_ms, queue=queue, wake=keys.wake, id=job_id, when=when
    )


def run_now(keys: Keys, queue: str, job_id: str, *, high_water: int, now_ms: str = "") -> Call[Moved]:
    """End the wait of a job. Not repeatable: the second answer may be `running`."""
    return queue_call(
        "run_now",
        keys,
        queue,
        _read_moved,
        repeatable=False,
        now=now_ms,
        queue=queue,
        wake=keys.wake,
        high_water=high_water,
        id=job_id,
    )


def retry(
    keys: Keys, queue: str, job_id: str, *, fingerprint: str, envelope: bytes, digest: str, now_ms: str = ""
) -> Call[RetryAnswer]:
    """Give a failed job all its tries again. Not repeatable: the second answer would be `refused`."""
    return queue_call(
        "retry",
        keys,
        queue,
        lambda reply: RetryAnswer(reply[0].decode(), _number(reply[1]), reply[2].decode()),
        repeatable=False,
        now=now_ms,
        queue=queue,
        wake=keys.wake,
        id=job_id,
        fingerprint=fingerprint,
        envelope=envelope,
        digest=digest,
    )


def forget(keys: Keys, queue: str, job_ids: Sequence[str]) -> Call[list[Answer]]:
    """Drop failed or completed jobs. Not repeatable: the second answer would be `unknown`."""
    return queue_call(
        "forget",
        keys,
        queue,
        lambda reply: [_word(answer) for answer in reply],
        repeatable=False,
        rows=[(job_id,) for job_id in job_ids],
    )


def _read_scheduled(reply: list[Any], jobs: Sequence[NewJob]) -> list[Placed]:
    if len(reply) != 2 or reply[0] == b"moved":
        return _read_placed(reply)
    now_ms = int(reply[1])  # the short answer: all jobs were created, and wait
    due_of = {when: int(when) + (now_ms if when[0] == "+" else 0) for when in {job.when for job in jobs}}
    return [Placed("created", "scheduled", due_of[job.when], job.id) for job in jobs]


def _read_placed(reply: list[Any]) -> list[Placed]:
    if reply[0] == b"moved":
        raise BackendError(
            f"The queue is spread over {reply[1].decode()} shards, and this release of delayq knows one.",
            hint="Use a queue without shards.",
        )
    answers = iter(reply[1:])
    return [
        Placed(_word(answer), state.decode(), _number(due), job_id.decode())
        for answer, state, due, job_id in zip(answers, answers, answers, answers, strict=True)
    ]


def _read_moved(reply: list[bytes]) -> Moved:
    return Moved(_word(reply[0]), _number(reply[1]))


def _word(reply: bytes) -> Answer:
    word: Answer = reply.decode()  # type: ignore[assignment]  # the manuals of the scripts list the answers
    return word


def _number(reply: bytes) -> int | None:
    return int(reply) if reply else None
