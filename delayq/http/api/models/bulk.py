"""Many jobs at once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from delayq.http.api.models.jobs import State
from delayq.http.api.models.words import Duration, Instant, Queue, Reason, Signature

Action = Literal["cancel", "archive", "run-now", "reschedule", "retry", "forget"]
MOST: Final = 1_000


class BulkFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs; as the query of `GET /v1/jobs`. The queue must be said.

    `signature`: failed jobs of one group of `GET /v1/failed/groups`.
    """

    queue: Queue
    states: list[State] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=255, examples=["order.*"])] | None = None
    tag: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    due_from: Instant | None = None
    due_to: Instant | None = None
    signature: Signature | None = None


class Bulk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do something to all jobs of a filter, at most `limit` at a time.

    `dry_run` only counts. `expect`: refuse (409) unless so many match; what the count said before. `reason` goes to the
    audit log; `archive` also keeps it as the error of each job.
    """

    action: Action
    filter: BulkFilter
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=MOST)] = MOST
    expect: Annotated[int, Meta(ge=0)] | None = None
    delay: Duration | None = None
    at: Instant | None = None
    reason: Reason | None = None


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """How many jobs had which outcome; `more`: there are others still, so ask again.

    With `dry_run` how many match; `exact` false: at least so many.
    """

    action: Action
    dry_run: bool
    outcomes: dict[str, int] | UnsetType = UNSET
    more: bool | UnsetType = UNSET
    matched: int | UnsetType = UNSET
    exact: bool | UnsetType = UNSET
