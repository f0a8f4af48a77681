"""How a worker works, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from delayq.core.outcome import Policy


class StopReason(StrEnum):
    """Why a worker stopped. The names are Laravel's where it has one.

    interrupted: by one signal, after the running job. aborted: by a second one, in the middle of it. stopped: by an
    operator's order. gone: what it served has ended.
    """

    INTERRUPTED = "interrupted"
    ABORTED = "aborted"
    MEMORY = "memory"
    RESTART = "restart"
    STOPPED = "stopped"
    EMPTY = "empty"
    EMPTY_FOR = "empty_for"
    MAX_TIME = "max_time"
    MAX_JOBS = "max_jobs"
    ONCE = "once"
    GONE = "gone"

    @property
    def exit_code(self) -> int:
        """0 for every wanted end; 12 over the memory limit, as in Laravel; 130 when torn out of a job."""
        return {StopReason.MEMORY: 12, StopReason.ABORTED: 130}.get(self, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker is told at its start. Durations in ms; 0 switches a limit off.

    `queues` in strict order of priority; with `weights`, one for each, the order is drawn for each read. `name` among
    the consumers is one that `names.consumer_name` made; '' = a new one. `sleep_ms` is the longest wait between two
    polls. `fallback` holds for jobs whose envelope and handler say nothing.

    `processes` children run handlers: sync ones one at a time, or in `threads` threads, async ones up to `concurrency`
    at once. What does not end by itself at its timeout is ended by force `kill_after_ms` later. After a stop was asked
    for, what runs has `grace_ms`; 3 s before its end it is interrupted (a short grace: in its last quarter). Limits in
    jobs and time are for all children together, `memory_mb` for each process. With `force` maintenance does not keep it
    from work. With `ends_process` the process ends after the worker: a signal that comes while it leaves is not heard
    any more, and the exit code stays. After `max_recoveries` vanished workers the next one fails a job: the number that
    the janitors of its queues go by.
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
    processes: int = 1
    threads: int = 1
    concurrency: int = 100
    kill_after_ms: int = 5_000
    grace_ms: int = 25_000
    stop_when_empty_for_ms: int = 0
    force: bool = False
    weights: tuple[int, ...] = ()
    ends_process: bool = False
    max_recoveries: int = 3
