"""JSON shapes of jobs, failed jobs and the reasons why a job has not run."""

from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec

from delayq.core.errors import UnreadableEnvelope
from delayq.core.failure_groups import FailedGroup
from delayq.core.json_shapes.answers import JobIdShape
from delayq.core.json_shapes.members import members_of, time_text
from delayq.core.states import State
from delayq.core.times import format_instant
from delayq.core.views import JobInfo


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job of `delayq list`.

    If the envelope cannot be read, `name` is '', and the other members from the envelope are null or empty. If the job
    is encrypted, `data` is null.
    """

    id: str
    name: str
    queue: str
    state: State
    due_ms: int | None
    due: str | None
    attempts: int | None
    tries: int | None
    data: Any
    tags: list[str]
    encrypted: bool
    created_ms: int | None
    created: str | None
    failed_ms: int | None
    failed: str | None
    forget_ms: int | None
    forget: str | None

    @classmethod
    def of(cls, job: JobInfo) -> Self:
        """Return the shape of a job."""
        envelope = job.envelope
        created_ms = envelope.created_ms if envelope else None
        return cls(
            id=job.id,
            name=job.name,
            queue=job.queue,
            state=job.state,
            due_ms=job.due_ms,
            due=time_text(job.due_ms),
            attempts=job.attempts,
            tries=envelope.tries if envelope else None,
            data=_payload(job),
            tags=(envelope.tags if envelope else None) or [],
            encrypted=job.is_encrypted,
            created_ms=created_ms,
            created=time_text(created_ms),
            failed_ms=job.failed_ms,
            failed=time_text(job.failed_ms),
            forget_ms=job.forget_ms,
            forget=time_text(job.forget_ms),
        )


@dataclass(frozen=True, slots=True)
class FailedJobShape(JobShape):
    """One job of `delayq failed list`. `error` is the last error, which has earlier errors in `history`."""

    error: dict[str, Any] | None

    @classmethod
    def of(cls, job: JobInfo) -> Self:
        """Return the shape of a job and its failure."""
        return cls(**members_of(JobShape.of(job)), error=msgspec.to_builtins(job.failure))


@dataclass(frozen=True, slots=True)
class FullJobShape(FailedJobShape):
    """Answer of `delayq show` and `delayq failed show`: all details of a job.

    `entry`, `consumer` and `idle_ms` describe the delivery of a reserved job. `shard`: null = the queue has one shard.
    `limit`: the limit that refused the job, if the job waits for it. If the job is encrypted, `result` is null.
    """

    result: Any
    retention_ms: int | None
    timeout_ms: int | None
    deadline_ms: int | None
    deadline: str | None
    unique: str | None
    headers: dict[str, str]
    recoveries: int
    entry: str | None
    consumer: str | None
    idle_ms: int | None
    cancel_asked_ms: int | None
    cancel_asked: str | None
    progress: Any
    shard: int | None
    limit: str | None

    @classmethod
    def of(cls, job: JobInfo) -> Self:
        """Return the shape of all members of a job."""
        envelope = job.envelope
        deadline_ms = envelope.deadline_ms if envelope else None
        return cls(
            **members_of(FailedJobShape.of(job)),
            result=None if job.is_encrypted else job.result,
            retention_ms=envelope.retention_ms if envelope else None,
            timeout_ms=envelope.timeout_ms if envelope else None,
            deadline_ms=deadline_ms,
            deadline=time_text(deadline_ms),
            unique=envelope.unique if envelope else None,
            headers=(envelope.headers if envelope else None) or {},
            recoveries=job.recoveries,
            entry=job.entry or None,
            consumer=job.consumer or None,
            idle_ms=job.idle_ms,
            cancel_asked_ms=job.cancel_asked_ms,
            cancel_asked=time_text(job.cancel_asked_ms),
            progress=job.progress,
            shard=job.shard,
            limit=job.refusals.limit if job.refusals else None,
        )


def _payload(job: JobInfo) -> Any:
    """Return the payload, None if it is encrypted, or its text if it cannot be decoded."""
    if job.is_encrypted:
        return None
    try:
        return job.data
    except UnreadableEnvelope:
        return bytes(job.envelope.data).decode("utf-8", "replace") if job.envelope else None


@dataclass(frozen=True, slots=True)
class FailedGroupShape:
    """One group of `delayq failed groups`. `sample` is the job of the group that failed last."""

    signature: str
    name: str
    type: str
    message: str
    count: int
    first_ms: int
    first: str
    last_ms: int
    last: str
    queues: list[str]
    sample: JobIdShape

    @classmethod
    def of(cls, group: FailedGroup) -> Self:
        """Return the shape of a group."""
        return cls(
            signature=group.signature,
            name=group.name,
            type=group.type,
            message=group.message,
            count=group.count,
            first_ms=group.first_ms,
            first=format_instant(group.first_ms),
            last_ms=group.last_ms,
            last=format_instant(group.last_ms),
            queues=group.queues,
            sample=JobIdShape(group.sample_id, group.sample_queue),
        )


@dataclass(frozen=True, slots=True)
class ReasonShape:
    """One reason of `delayq why`: a fixed code, a sentence, and the next step; '' = you need only wait."""

    code: str
    what: str
    next: str


@dataclass(frozen=True, slots=True)
class WhyShape:
    """Answer of `delayq why`. The most important reason comes first."""

    id: str
    name: str
    queue: str
    state: State
    reasons: list[ReasonShape]

    @classmethod
    def of(cls, job: JobInfo, reasons: list[ReasonShape]) -> Self:
        """Return the shape of the reasons for the state of a job."""
        return cls(job.id, job.name, job.queue, job.state, reasons)


@dataclass(frozen=True, slots=True)
class UnknownJobShape:
    """Answer of `delayq show`, `why` and `failed show` if the queue has no such job.

    `queue`: the queue that was read; null if `failed show` has searched several queues.
    """

    id: str
    queue: str | None
    state: Literal["unknown"] = "unknown"
