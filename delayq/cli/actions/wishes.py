"""What was said to a worker on the command line, before anything is looked up."""

from __future__ import annotations

from dataclasses import dataclass, field

from delayq.cli.events import EventLines


@dataclass(frozen=True, slots=True)
class Size:
    """Processes, threads in each, and whether mover and janitor run beside them."""

    processes: int = 1
    threads: int = 1
    mover: bool = True


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a worker serves and how; None = as the settings say."""

    queue: str | None = None
    tries: str | None = None
    backoff: str | None = None
    timeout: str | None = None
    rest: str = "0s"
    sleep: str = "1s"
    name: str | None = None
    size: Size = field(default_factory=Size)
    allow_eviction: bool = False
    force: bool = False
    weighted: bool = False
    connection: str | None = None
    metrics_port: str | None = None
    grace: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a worker stops by itself."""

    once: bool = False
    stop_when_empty: bool = False
    stop_when_empty_for: str = "0s"
    max_jobs: int = 0
    max_time: str = "0s"
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """All that was said to a worker; `began` is when its code began to be loaded, `events` writes what happens."""

    wishes: Wishes
    limits: Limits
    quiet: bool = False
    began: float | None = None
    events: EventLines | None = None
