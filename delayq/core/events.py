"""What happens to jobs, as tiny frozen values. Logs, the demo and metrics listen; nothing depends on a listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args


@dataclass(frozen=True, slots=True)
class JobStarted:
    """An attempt begins. `late_ms` is how long after its due time."""

    id: str
    name: str
    queue: str
    attempt: int
    due_ms: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """An attempt ended; `took_ms` is its duration, `error` its cause.

    `outcome` is done, released (to be tried again), snoozed (released without an error), stopped (as it was asked to)
    or failed. An attempt may end without having started: no handler, no tries left, an envelope nobody can read (its
    `name` is then '').
    """

    id: str
    name: str
    queue: str
    attempt: int
    outcome: str
    took_ms: float
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class JobFenced:
    """A settlement came too late: the job was taken back meanwhile (or, when resent, its first reply was lost)."""

    id: str
    queue: str
    resent: bool


@dataclass(frozen=True, slots=True)
class JobDispatched:
    """A job was handed in. `outcome` is its answer's: created, kept (it is there already), vetoed, after commit, …

    `due_ms` is None when it waits for no time. Told where it was dispatched, once it was.
    """

    id: str
    name: str
    queue: str
    connection: str
    outcome: str
    due_ms: int | None


@dataclass(frozen=True, slots=True)
class JobSkipped:
    """Middleware left a job undone; it counts as done."""

    id: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class UniqueJobSkipped:
    """A dispatch changed nothing, because the job `owner` has its unique key. Told where it was dispatched."""

    owner: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class JobDebounced:
    """A job that had not started will not run: the job `by` took its place. Told where that was dispatched."""

    id: str
    name: str
    queue: str
    by: str


@dataclass(frozen=True, slots=True)
class JobLimited:
    """A limit kept a job from starting. It is snoozed for `delay_ms`, or, with None, left undone."""

    id: str
    name: str
    queue: str
    limit: str
    key: str
    delay_ms: int | None


@dataclass(frozen=True, slots=True)
class NotificationEvent:
    """A notification, one address, one channel. `id` is the notification's, `job_id` its job's."""

    id: str
    name: str
    channel: str
    address: str
    job_id: str


@dataclass(frozen=True, slots=True)
class NotificationSending(NotificationEvent):
    """It is about to go out."""


@dataclass(frozen=True, slots=True)
class NotificationSent(NotificationEvent):
    """The channel took it."""


@dataclass(frozen=True, slots=True)
class NotificationSkipped(NotificationEvent):
    """Its `should_send` said no."""


@dataclass(frozen=True, slots=True)
class NotificationFailed(NotificationEvent):
    """An attempt failed; the job says whether there is another one."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class WorkerStarting:
    """A worker begins, and hears signals from now on. `weights` belong to `queues`, none = strict order.

    `jobs` are the names it knows.
    """

    name: str
    queues: tuple[str, ...]
    weights: tuple[int, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerStopping:
    """A worker ends, with the reason's name and the number of jobs it ran."""

    name: str
    reason: str
    jobs: int


Event: TypeAlias = JobStarted | JobEnded | JobFenced | WorkerStarting | WorkerStopping
EVENTS: Final[tuple[type, ...]] = get_args(Event)
"""What a worker tells its listeners."""
Listener: TypeAlias = Callable[[Event], None]
