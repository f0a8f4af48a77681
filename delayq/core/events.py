"""What happens to jobs, as tiny frozen values. Logs, the demo and metrics listen; nothing depends on a listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args


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

    `outcome` is done, released (to be tried again), snoozed (released without an error), interrupted (handed back by a
    worker that stops), stopped (as it was asked to), discarded or failed. An attempt may end without having started: no
    handler, no tries left, an unreadable envelope (its `name` is then '').
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
    """A job was handed in. `outcome` is its answer's: created, kept (it is there already), vetoed, outbox, …

    `due_ms` is None when it waits for no time. Told where it was dispatched, once it was: after the commit, if it
    waited for one.
    """

    id: str
    name: str
    queue: str
    connection: str
    outcome: str
    due_ms: int | None


@dataclass(frozen=True, slots=True)
class JobRolledBack:
    """A job that waited for a commit was dropped: the transaction, or the savepoint, was rolled back."""

    id: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class JobUnsent:
    """A job that waited for a commit could not be sent after it. The transaction stays committed."""

    id: str
    name: str
    queue: str
    error: BaseException


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
class JobModelMissing:
    """A model that a job refers to is gone. `outcome` says what became of the job: failed or discarded."""

    id: str
    name: str
    queue: str
    field: str
    model: str
    key: Any
    outcome: str


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


@dataclass(frozen=True, slots=True)
class WorkerIdle:
    """A worker has nothing to do: none of its queues has a job that is due. Told once each time that begins.

    `jobs` is how many it ran until now.
    """

    name: str
    queues: tuple[str, ...]
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerInterrupted:
    """A signal asked a worker to stop; what runs comes to its end first. `signal` is its name, as `SIGTERM`."""

    name: str
    signal: str


@dataclass(frozen=True, slots=True)
class WorkerPausing:
    """A signal asked a worker to start nothing more until it is told to go on."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkerResuming:
    """A signal told a paused worker to go on."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkerQueuePaused:
    """A process of a worker found a queue paused, by its name or with all others. `name` is that process's."""

    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class WorkerQueueResumed:
    """A process of a worker found that a queue is not paused any more."""

    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class JobRetryRequested:
    """Somebody gave a failed job all its tries again. Told where that was done."""

    id: str
    name: str
    queue: str


Event: TypeAlias = (
    JobStarted
    | JobEnded
    | JobFenced
    | WorkerStarting
    | WorkerStopping
    | WorkerIdle
    | WorkerInterrupted
    | WorkerPausing
    | WorkerResuming
    | WorkerQueuePaused
    | WorkerQueueResumed
)
EVENTS: Final[tuple[type, ...]] = get_args(Event)
"""What a worker tells its listeners."""
Listener: TypeAlias = Callable[[Event], None]
Tell: TypeAlias = Callable[[object], None]
"""Tells an event to whoever listens here."""


def nobody_listens(event: object) -> None:
    """Where there is no application, nobody can listen."""
