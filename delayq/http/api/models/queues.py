"""Queues, workers, batches, deeds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from delayq.http.api.models.words import Duration, Epoch, Queue, Reason


class QueueRow(Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in which state. `overdue_oldest_ms`: how late the oldest due job is."""

    queue: Queue
    scheduled: int
    ready: int
    reserved: int
    failed: int
    completed: int
    paused: bool
    overdue_oldest_ms: int


class QueueList(Struct, frozen=True, kw_only=True):
    """A page of queues; `next` is the name that the next page begins behind, null at the end."""

    queues: list[QueueRow]
    next: str | None


class QueueInFull(QueueRow, frozen=True, kw_only=True):
    """A queue, what it keeps for itself, and what it has counted since it is there."""

    lease_ms: int
    durability: str
    shards: int
    paused_until_ms: Annotated[int, Meta(description="0 = until resumed.")] | None
    counters: dict[str, int]


class Removed(Struct, frozen=True, kw_only=True):
    """A queue that is forgotten."""

    queue: Queue
    removed: bool


class Pause(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long; without it, until resumed."""

    length: Duration | None = None
    reason: Reason | None = None


class Paused(Struct, frozen=True, kw_only=True):
    """Whether a queue is paused, and until when (0 = until resumed)."""

    queue: Queue
    paused: bool
    paused_until_ms: int | None


class Upcoming(Struct, frozen=True, kw_only=True):
    """`counts[n]` jobs fall due within the n-th span of `span_ms` from `now_ms` on; `later` after the last one."""

    queue: Queue
    now_ms: Epoch
    now: str
    span_ms: int
    overdue: int
    counts: list[int]
    later: int


class Workers(Struct, frozen=True, kw_only=True):
    """The workers that are here, each with what it says of itself."""

    workers: list[dict[str, Any]]


class Ordered(Struct, frozen=True, kw_only=True):
    """A worker that was told something, and the names of its processes."""

    worker: Annotated[str, Meta(examples=["dq:web-1:4710:41c09e77"])]
    order: Literal["quiet", "resume", "stop", "restart"]
    processes: list[str]


class Batch(Struct, frozen=True, kw_only=True):
    """A batch as it stands."""

    id: str
    name: str
    state: Annotated[str, Meta(examples=["running"])]
    total: int
    pending: int
    done: int
    failed: int
    skipped: int
    progress: Annotated[int, Meta(ge=0, le=100, description="Per cent.")]
    allow_failures: bool
    owner: str
    created_ms: Epoch | None
    created: str | None
    cancelled_ms: Epoch | None
    cancelled: str | None
    finished_ms: Epoch | None
    finished: str | None


class Batches(Struct, frozen=True, kw_only=True):
    """The newest batches, newest first."""

    batches: list[Batch]


class Member(Struct, frozen=True, kw_only=True):
    """A member of a batch; `queue` null: it is a batch itself."""

    id: str
    queue: str | None


class BatchInFull(Batch, frozen=True, kw_only=True):
    """A batch, its members that failed, and some that have not ended."""

    failed_members: list[Member]
    pending_members: list[Member]


class BatchRetried(Struct, frozen=True, kw_only=True):
    """How many members are tried again."""

    id: str
    retried: int


class Why(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reason for the audit log."""

    reason: Reason | None = None


class Deed(Struct, frozen=True, kw_only=True):
    """Something that was done by hand."""

    id: str
    at_ms: Epoch
    at: str
    who: str
    door: Annotated[str, Meta(examples=["api"])]
    what: str
    on: str
    detail: str
    reason: str
    outcome: Annotated[str, Meta(description="done, refused or unknown.", examples=["done"])]
    refusal: str


class Deeds(Struct, frozen=True, kw_only=True):
    """What was done by hand, the newest first."""

    deeds: list[Deed]
