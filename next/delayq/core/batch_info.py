"""A batch as people and programs see it."""

from typing import Literal, NamedTuple

import msgspec

BatchState = Literal["running", "cancelling", "finished", "failed", "cancelled", "incomplete"]


class MissingJob(NamedTuple):
    """A pending member that has no job. `id` and `queue`: the id and the queue of the missing job.

    `reason` is the reason why the job is missing:

    * "unsent": The job was not sent yet.
    * "ended": The job was sent. It was deleted, or it has ended and a relay has not recorded this yet.
    * "next": The job is a later link of the chain `member`. It waits for its unique key or for a relay, or it has ended
      and a relay has not recorded this yet.
    """

    queue: str
    id: str
    member: str
    reason: Literal["unsent", "ended", "next"]


class BatchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and its counts. Each member is counted once, so `total` is the sum of the four other counts.

    * `id`, `name`: the id and the name of the batch.
    * `pending`: the number of members that have not ended. `succeeded`, `failed`: the numbers of members that have
      succeeded, and that have failed.
    * `skipped`: the number of members that were cancelled, or asked to stop while they ran.
    * `allows_failures`: True if a failed member does not cancel the batch.
    * `created_ms`, `cancelled_ms`, `finished_ms`: times in epoch ms; None = this has not happened. A batch has finished
      when all its members have ended.
    * `outcome`: the result of the dispatch, or of `add`. None = the batch was only read or cancelled. "created" = the
      members of the call have been sent, by this call or by an earlier one. "kept" = nothing was sent, because no
      member of the call is pending: all of them have ended or were left out, or the batch was cancelled or has
      finished. "after commit" = the batch waits for the commit of a database transaction.
    """

    id: str
    name: str
    total: int
    pending: int
    succeeded: int
    failed: int
    skipped: int
    allows_failures: bool
    created_ms: int
    cancelled_ms: int | None = None
    finished_ms: int | None = None
    outcome: Literal["created", "kept", "after commit"] | None = None

    @property
    def per_cent(self) -> int:
        """The share of members that have ended, in per cent, rounded down."""
        return (self.total - self.pending) * 100 // self.total if self.total else 100

    @property
    def state(self) -> BatchState:
        """The state of the batch.

            running      members are pending
            cancelling   the batch was cancelled, and members are still pending
            finished     all members have succeeded
            failed       all members have ended, and some have failed
            cancelled    the batch was cancelled, and all members have ended
            incomplete   all members have ended, none has failed, but some were cancelled one by one

        A batch whose first failure cancelled it is `failed`.
        """
        if self.finished_ms is None:
            return "running" if self.cancelled_ms is None else "cancelling"
        if self.failed:
            return "failed"
        if not self.skipped:
            return "finished"
        return "incomplete" if self.cancelled_ms is None else "cancelled"

    @property
    def is_cancelled(self) -> bool:
        """True if the batch was cancelled, by a caller or by its first failure."""
        return self.cancelled_ms is not None
