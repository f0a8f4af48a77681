"""Deliveries for services without a Redis client."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from delayq.http.api.models.words import Duration, Epoch, Queue

MOST = 100
LONGEST_WAIT_MS = 60_000


class Ask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to `count` jobs, waiting up to `wait` (at most 60s) for the first."""

    count: Annotated[int, Meta(ge=1, le=MOST)] = 1
    wait: Duration = "0s"


class Reservation(Struct, frozen=True, kw_only=True):
    """A job that is yours until its lease ends. `data` of an encrypted one is what travels, still encrypted.

    `attempt` of `tries` (0 = no limit); `recoveries`: how often somebody vanished with it before.
    """

    token: str
    id: str
    name: str
    queue: Queue
    data: Any
    encrypted: bool
    headers: dict[str, str]
    tags: list[str]
    attempt: int
    tries: int
    recoveries: int
    due_ms: Epoch
    due: str
    lease_ms: int
    fence: Annotated[str, Meta(description="Grows with every delivery of the job: for your own database.")]


class Reservations(Struct, frozen=True, kw_only=True):
    """What came; empty when the time was over."""

    reservations: list[Reservation]


class Renewed(Struct, frozen=True, kw_only=True):
    """The lease begins anew. `stop`: somebody asks the job to stop."""

    lease_ms: int
    stop: bool


class Done(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work is done. `result` is kept with jobs that have a retention."""

    result: Any = None


class Put(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Not now: the job comes again after `delay`; this costs no attempt."""

    delay: Duration = "0s"


class Broken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attempt failed. The job is tried again by its backoff, or after `delay`, while it has tries.

    `final`: whatever tries are left, it has failed.
    """

    message: Annotated[str, Meta(max_length=4_000)]
    type: Annotated[str, Meta(min_length=1, max_length=200)] = "Failed"
    traceback: Annotated[str, Meta(max_length=16_000)] = ""
    delay: Duration | None = None
    final: bool = False


class Ended(Struct, frozen=True, kw_only=True):
    """What became of the job: done, released, snoozed or failed."""

    id: str
    queue: Queue
    outcome: str
