"""JSON shapes of answers to commands that change jobs and queues."""

from dataclasses import dataclass
from typing import Literal, Self

from delayq.core.json_shapes.members import time_text
from delayq.core.states import Answer, State


@dataclass(frozen=True, slots=True)
class JobIdShape:
    """A job in an answer about several jobs. An id is unique within its queue."""

    id: str
    queue: str


@dataclass(frozen=True, slots=True)
class ScheduledJobShape:
    """Answer of `delayq schedule`.

    `due_ms` and `due` are null if the outcome is `kept` and the existing job is not scheduled. `delayq show` reads the
    due time of a ready or reserved job.
    """

    id: str
    name: str
    queue: str
    state: State
    due_ms: int | None
    due: str | None
    outcome: Answer

    @classmethod
    def of(cls, *, id: str, name: str, queue: str, state: State, due_ms: int | None, outcome: Answer) -> Self:
        """Return the shape for the members of a JobRef."""
        return cls(id, name, queue, state, due_ms, time_text(due_ms), outcome)


@dataclass(frozen=True, slots=True)
class MovedJobShape:
    """Answer of `delayq reschedule` and `delayq run-now`.

    There is no `name`, because these commands do not read the envelope.
    """

    id: str
    queue: str
    state: State
    due_ms: int | None
    due: str | None
    outcome: Answer

    @classmethod
    def of(cls, *, id: str, queue: str, state: State, due_ms: int | None, outcome: Answer) -> Self:
        """Return the shape for the members of a JobRef."""
        return cls(id, queue, state, due_ms, time_text(due_ms), outcome)


@dataclass(frozen=True, slots=True)
class OutcomeShape:
    """Answer of `delayq cancel`, `archive`, `failed retry` and `failed forget`.

    Also the answer of other commands in these cases:

    reschedule, run-now              the job is unknown, or its state does not allow the change
    failed show                      the job has not failed
    schedule                         `--on-conflict` refuses the job
    schedule, reschedule, run-now    the reply of Redis was lost

    These outcomes need an explanation:

    done        `failed retry --here` has run the job
    unknown     the queue has no such job; exit code 3
    refused     the state of the job forbids `failed retry` or `failed forget`, or `failed show` found a job that has
                not failed; exit code 4
    conflict    the id or the unique key of `schedule` is taken; exit code 4; `id` is '' if the command named no id
    uncertain   the reply of Redis was lost, so the change may have happened; exit code 7

    `queue` is null if one of the `failed` commands searched several queues and found no job with this id.
    """

    id: str
    queue: str | None
    outcome: Answer | Literal["done", "uncertain"]


@dataclass(frozen=True, slots=True)
class QueueOutcomeShape:
    """Answer of `delayq queue remove`, and of `queue set`, `resume` and `clear` if they fail in one of these ways.

    removed     the queue was removed
    unknown     the queue is unknown; exit code 3
    refused     the queue is not empty, or its number of shards is being changed; exit code 4
    uncertain   the reply of Redis was lost, so the change may have happened; exit code 7
    """

    queue: str
    outcome: Literal["removed", "unknown", "refused", "uncertain"]


@dataclass(frozen=True, slots=True)
class DeletedShape:
    """Answer of `delayq clear`, and one queue of `delayq failed flush` and `delayq failed prune`."""

    queue: str
    deleted: int
