"""The words that verbs of both shells take, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from delayq.core.backoff import BackoffSpec
from delayq.core.spec import Delay, Instant, Limit
from delayq.core.unique import Unique


class When(TypedDict, total=False):
    """When: a `delay` ('15m') or a time `at`, with `tz` for a naive one and `fold` for an ambiguous one."""

    delay: Delay | None
    at: Instant | None
    tz: str | None
    fold: int | None


class ScheduleOptions(When, total=False):
    """What `schedule` takes besides name and data; see `JobSpec`."""

    id: str | None
    queue: str | None
    tries: int | None
    backoff: BackoffSpec | None
    retention: Delay | None
    unique: str | Unique | None
    headers: Mapping[str, str] | None
    tags: Sequence[str] | None
    timeout: Delay | None
    deadline: Limit | None
    retry_until: Limit | None
    max_exceptions: int | None
    encrypted: bool | None


class QueueSettings(TypedDict, total=False):
    """What a queue keeps for itself: its lease, what answers wait for, over how many shards it is spread."""

    lease: str | None
    durability: str | None
    shards: int | None
