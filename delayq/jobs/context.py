"""What a handler may know about the delivery it is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _nobody_asked() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class JobContext:
    """One attempt, as its handler sees it.

    `attempt` counts from 1. `token` is the stream entry's id: it grows with every delivery of the job, so a handler
    may pass it to its own database to refuse a late writer (after a failover that lost writes it may repeat).
    `stop_asked()` tells whether somebody asked this job to stop (`cancel` with `running`): a handler that loops may
    look, tidy up and return. It is known within a third of the lease.
    """

    id: str
    name: str
    queue: str
    attempt: int
    tries: int
    recoveries: int
    due_ms: int
    token: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    stop_asked: Callable[[], bool] = field(default=_nobody_asked, repr=False)
