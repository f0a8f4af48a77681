"""What happens to queues and connections, as tiny frozen values for listeners."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueuePaused:
    """Somebody paused a queue; '' = all of them. `until_ms` 0 = until it is resumed. Told where that was done."""

    queue: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class QueueResumed:
    """Somebody undid the pause of a queue; '' = that of everything. Told where that was done."""

    queue: str


@dataclass(frozen=True, slots=True)
class QueueBusy:
    """Somebody looked, and a queue had more to do than it should: `size` jobs ready or running, `limit` or more."""

    queue: str
    size: int
    limit: int


@dataclass(frozen=True, slots=True)
class QueueFailedOver:
    """A failover passed a connection over: `failed` did not take the job, and `to` did.

    Told once, until `failed` takes a job again. `error` is what it said.
    """

    connection: str
    failed: str
    to: str
    error: BaseException
