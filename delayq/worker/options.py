"""How a worker works, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from delayq.core.outcome import Policy


class StopReason(StrEnum):
    """Why a worker stopped. The names are Laravel's where it has one."""

    INTERRUPTED = "interrupted"
    MEMORY = "memory"
    EMPTY = "empty"
    MAX_TIME = "max_time"
    MAX_JOBS = "max_jobs"
    ONCE = "once"

    @property
    def exit_code(self) -> int:
        """0 for every wanted end; 12 over the memory limit, as in Laravel."""
        return 12 if self is StopReason.MEMORY else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker is told at its start. Durations in ms; 0 switches a limit off.

    `queues` in strict order of priority. `sleep_ms` is the longest wait between two polls. `fallback` holds for jobs
    whose envelope and handler say nothing.
    """

    queues: tuple[str, ...]
    fallback: Policy
    name: str = ""
    once: bool = False
    stop_when_empty: bool = False
    max_jobs: int = 0
    max_time_ms: int = 0
    memory_mb: int = 0
    rest_ms: int = 0
    sleep_ms: int = 1_000
    mover: bool = True
    tidy_every_ms: int = 10_000
