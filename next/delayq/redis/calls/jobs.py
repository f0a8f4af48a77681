"""Calls that change jobs: schedule, replace, cancel, reschedule, run_now, retry, forget."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.core.errors import BackendError
from delayq.core.job_spec import NewJob
from delayq.core.states import Answer, State
from delayq.redis.calls.call import Call, number, queue_call
from delayq.redis.keys import Keys

ONCE_MS: Final = 60_000
"""How long the server keeps the reply to a call with a token, in ms. If the call is sent again, it gets this reply
again."""


class ShardsChanged(BackendError):
    """The queue has another number of shards than the caller knew, so nothing was stored."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The answer for one new job, and the resulting state and due time.

    `id` is the id of the new job, or of another job that owns the unique key of the new job. State and due time are
    those of the job with this id. `due_ms` is None for an existing job that is not scheduled.
    """

    answer: Answer
    state: State
    due_ms: int | None
    id: str


class Rescheduled(msgspec.Struct, frozen=True, gc=False):
    """The answer to `reschedule` or `run_now`. `due_ms` is the new due time, or None if nothing changed."""

    answer: Answer
    due_ms: int | None = None


class RetryAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer to `retry`. With "conflict", `owner` is the id of the job that owns the unique key."""

    answer: Literal["scheduled", "changed", "conflict", "refused", "unknown"]
    due_ms: int | None
    owner: str


class OfNewQueue(list[Placed]):
    """The answers of a call that created its queue."""


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
    shards: int = 1,
    now_ms: str = "",
) -> Call[list[Placed]]:
    """Store new jobs of one shard, whose queue must already be on the list of queues.

    The call returns an answer for each job. `shards`: the number of shards that the caller knows. If the queue has
    another number of shards, nothing is stored, and the outcome of the call is the error ShardsChanged.

    `token` identifies this call: the server keeps the first reply for `once_ms`, and returns it again if the call is
    resent. Pass a token if a job may have ended before the call is resent, because the second call would create the job
    again.
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
        shards=shards,
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
    shards: int = 1,
    now_ms: str = "",
) -> Call[list[Placed]]:
    """Schedule jobs even if their ids are taken. For `shards` and ShardsChanged, see `schedule`.

    If `word` is "replaced", an existing job gets the new envelope and due time. If `word` is "postponed", it gets only
    the new due time.
    """
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
        shards=shards,
        rows=[(job.id, job.envelope, job.when, job.lock) for job in jobs],
    )


def cancel(
    keys: Keys,
    queue: str,
    job_id: str,
    *,
    running: bool = False,
    ends: bool = False,
    failure: bytes = b"",
    token: str,
    only: str = "",
    now_ms: str = "",
) -> Call[Answer]:
    """Cancel a job that is not delivered yet. With `running`, also ask a running job to stop.

    With `ends`, a running job may finish, but does not run again: instead of its next retry or recovery, it ends.
    `only`: a text that the envelope must contain; otherwise the answer is "unknown". '' = any envelope. With a
    `failure` (JSON without its closing brace), the job is archived, that is, moved to the failed jobs. `token`: as in
    `schedule`.
    """
    return queue_call(
        "cancel",
        keys,
        queue,
        lambda reply: _word(reply[0]),
        token=token,
        now=now_ms,
        id=job_id,
        running=2 if ends else int(running),
        once_ms=ONCE_MS,
        queue=queue,
        hint=keys.cancel,
        only=only,
        wake=keys.wake,
        failure=failure,
    )


def reschedule(keys: Keys, queue: str, job_id: str, when: str, *, now_ms: str = "") -> Call[Rescheduled]:
    """Change the due time of a scheduled or ready job. `when`: '+ms' from now, or epoch ms."""
    return queue_call(
        "reschedule", keys, queue, _read_rescheduled, now=now_ms, queue=queue, wake=keys.wake, id=job_id, when=when
    )


def run_now(keys: Keys, queue: str, job_id: str, *, high_water: int, now_ms: str = "") -> Call[Rescheduled]:
    """Make a scheduled job ready now.

    If the reply is lost, the executor does not send the call again, because a worker may have taken the job in the
    meantime. The second reply would then be `running`.
    """
    return queue_call(
        "run_now",
        keys,
        queue,
        _read_rescheduled,
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
    """Schedule a failed job again, with no attempts used.

    `fingerprint`: the checksum of the envelope that the caller has read. If the stored envelope has another checksum,
    nothing changes. `envelope`: the new envelope. `digest`: the digest of the unique key that the job takes again;
    '' = none.

    The call is not repeatable, because the second reply is `refused`.
    """
    return queue_call(
        "retry",
        keys,
        queue,
        lambda reply: RetryAnswer(reply[0].decode(), number(reply[1]), reply[2].decode()),
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
    """Delete failed or completed jobs. The call is not repeatable, because the second reply would be `unknown`."""
    return queue_call(
        "forget",
        keys,
        queue,
        lambda reply: [_word(answer) for answer in reply],
        repeatable=False,
        rows=[(job_id,) for job_id in job_ids],
    )


def _read_scheduled(reply: list[Any], jobs: Sequence[NewJob]) -> Any:
    if len(reply) != 2 or reply[0] == b"moved":
        return _read_placed(reply)
    now_ms = int(reply[1])  # the short reply, if all jobs were created and are due later
    due_of = {when: int(when) + (now_ms if when[0] == "+" else 0) for when in {job.when for job in jobs}}
    return [Placed("created", "scheduled", due_of[job.when], job.id) for job in jobs]


def _read_placed(reply: list[Any]) -> Any:
    """Return the answers for jobs, or the error ShardsChanged as the outcome of the call."""
    if reply[0] == b"moved":
        return ShardsChanged("The queue has another number of shards.")
    answers = iter(reply[1:])
    placed = [
        Placed(_word(answer), state.decode(), number(due), job_id.decode())
        for answer, state, due, job_id in zip(answers, answers, answers, answers, strict=True)
    ]
    return OfNewQueue(placed) if reply[0] == b"1" else placed


def _read_rescheduled(reply: list[bytes]) -> Rescheduled:
    return Rescheduled(_word(reply[0]), number(reply[1]))


def _word(reply: bytes) -> Answer:
    word: Answer = reply.decode()  # type: ignore[assignment]  # the manuals of the scripts list the answers
    return word
