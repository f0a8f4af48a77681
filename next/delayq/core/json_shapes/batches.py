"""JSON shapes of batches."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from delayq.core.batch_info import BatchInfo, BatchState, MissingJob
from delayq.core.json_shapes.answers import JobIdShape
from delayq.core.json_shapes.members import members_of, time_text
from delayq.core.times import format_instant


@dataclass(frozen=True, slots=True)
class BatchShape:
    """One batch of `delayq batch list`.

    `total`, `pending`, `succeeded`, `failed` and `skipped` are numbers of members. `per_cent` is the share of members
    that have ended.
    """

    id: str
    name: str
    state: BatchState
    total: int
    pending: int
    succeeded: int
    failed: int
    skipped: int
    per_cent: int
    allows_failures: bool
    created_ms: int
    created: str
    cancelled_ms: int | None
    cancelled: str | None
    finished_ms: int | None
    finished: str | None

    @classmethod
    def of(cls, batch: BatchInfo) -> "BatchShape":
        """Return the shape of a batch."""
        return BatchShape(
            id=batch.id,
            name=batch.name,
            state=batch.state,
            total=batch.total,
            pending=batch.pending,
            succeeded=batch.succeeded,
            failed=batch.failed,
            skipped=batch.skipped,
            per_cent=batch.per_cent,
            allows_failures=batch.allows_failures,
            created_ms=batch.created_ms,
            created=format_instant(batch.created_ms),
            cancelled_ms=batch.cancelled_ms,
            cancelled=time_text(batch.cancelled_ms),
            finished_ms=batch.finished_ms,
            finished=time_text(batch.finished_ms),
        )

    def with_jobs(self, failed: Iterable[tuple[str, str]], missing: Iterable[MissingJob] | None) -> "FullBatchShape":
        """Return the shape with failed and missing jobs of the batch.

        `failed`: queue and id of each failed job. `missing`: None = the queue of a member cannot be read.
        """
        return FullBatchShape(
            **members_of(self),
            failed_jobs=[JobIdShape(id, queue) for queue, id in failed],
            without_job=None
            if missing is None
            else [MissingJobShape(job.id, job.queue, job.member, job.reason) for job in missing],
        )


@dataclass(frozen=True, slots=True)
class MissingJobShape:
    """A pending member that has no job. `id` and `queue`: the id and the queue of the missing job.

    unsent   the job was not sent yet
    ended    the job was deleted, or it has ended and a relay has not recorded this yet
    next     the job is a later link of the chain `member`; it waits for its unique key or for a relay, or it has ended
             and a relay has not recorded this yet
    """

    id: str
    queue: str
    member: str
    reason: Literal["unsent", "ended", "next"]


@dataclass(frozen=True, slots=True)
class FullBatchShape(BatchShape):
    """Answer of `delayq batch show`.

    `failed_jobs` lists up to 20 failed jobs of the batch, and `without_job` up to 20 pending members that have no job.
    `without_job` is None if the queue of a member cannot be read.
    """

    failed_jobs: list[JobIdShape]
    without_job: list[MissingJobShape] | None


@dataclass(frozen=True, slots=True)
class UnknownBatchShape:
    """Answer of `delayq batch show` for an unknown id."""

    id: str
    state: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class BatchOutcomeShape:
    """Answer of `delayq batch cancel`.

    cancelled   the batch is cancelled
    unknown     the id is unknown; exit code 3
    finished    the batch had finished before; exit code 4
    uncertain   the reply of Redis was lost; exit code 7
    """

    id: str
    outcome: Literal["cancelled", "unknown", "finished", "uncertain"]


@dataclass(frozen=True, slots=True)
class BatchRetryShape:
    """Answer of `delayq batch retry`. `retried` is the number of jobs that were retried."""

    id: str
    retried: int
