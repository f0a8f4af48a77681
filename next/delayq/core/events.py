"""Events that listeners can receive. docs/events.md names the process that emits each event."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Ended = Literal["done", "retried", "snoozed", "failed", "discarded", "cancelled"]
"""The outcome of an attempt. "snoozed" includes jobs that a limit refused, and jobs that a shutdown interrupted."""


class WorkerStarting(msgspec.Struct, frozen=True):
    """A child process of a worker is ready to fetch its first job.

    * `consumer`: the name of the child as a consumer of the Redis streams.
    * `queues`: the queues that the child serves, by priority.
    """

    consumer: str
    queues: tuple[str, ...]


class WorkerLooping(msgspec.Struct, frozen=True):
    """A child process of a worker is about to fetch jobs.

    If a listener returns False or raises an exception, the child fetches nothing for one second. Running jobs go on.

    * `consumer`: the name of the child as a consumer of the Redis streams.
    * `queues`: the queues that the child serves, by priority.
    """

    consumer: str
    queues: tuple[str, ...]


class WorkerStopping(msgspec.Struct, frozen=True):
    """A child process of a worker is about to exit normally.

    Listeners of this event run in the child process, before its `atexit` hooks. `consumer`: the name of the child as a
    consumer of the Redis streams.
    """

    consumer: str


class QueuePaused(msgspec.Struct, frozen=True):
    """A child process of a worker has noticed that a queue is paused.

    Each child that serves the queue emits this event, also if all queues are paused or maintenance is on.
    """

    queue: str


class QueueResumed(msgspec.Struct, frozen=True):
    """A child process of a worker has noticed that the pause of a queue has ended."""

    queue: str


class QueueBusy(msgspec.Struct, frozen=True):
    """The command `delayq stats --busy-above N --app MODULE` has found a queue with more than N ready jobs.

    * `ready`: the number of ready jobs. `limit`: the number N.
    """

    queue: str
    ready: int
    limit: int


class JobDispatched(msgspec.Struct, frozen=True):
    """A dispatch has stored a job.

    * `id`, `name`, `queue`: the id, name and queue of the job.
    * `due_ms`: the due time in epoch ms; None = not known.
    * `outcome`: "created", "replaced" or "postponed".
    """

    id: str
    name: str
    queue: str
    due_ms: int | None
    outcome: str


class JobStarted(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt is about to call its middleware and handler.

    * `id`, `name`, `queue`: the id, name and queue of the job.
    * `attempt`: the number of this attempt, counted from 1.
    * `headers`, `tags`: the headers and tags of the job.
    """

    id: str
    name: str
    queue: str
    attempt: int
    headers: Mapping[str, str]
    tags: tuple[str, ...]


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt has ended, but its job is not settled yet.

    * `id`, `name`, `queue`: the id, name and queue of the job.
    * `attempt`: the number of this attempt, counted from 1.
    * `headers`, `tags`: the headers and tags of the job.
    * `outcome`: "done", "retried", "snoozed" (also a job that a limit refused or a shutdown interrupted), "failed",
      "discarded" or "cancelled".
    * `error`: the error of a retried or failed job; None for the other outcomes.
    * `seconds`: how long the attempt ran.
    """

    id: str
    name: str
    queue: str
    attempt: int
    headers: Mapping[str, str]
    tags: tuple[str, ...]
    outcome: Ended
    error: BaseException | None
    seconds: float


class JobRetryRequested(msgspec.Struct, frozen=True):
    """A failed job was made due again by this process: by a call of `retry`, or by `delayq failed retry --app MODULE`.

    * `id`, `name`, `queue`: the id, name and queue of the job.
    """

    id: str
    name: str
    queue: str


class NotificationSent(msgspec.Struct, frozen=True):
    """A channel has sent a notification.

    * `id`: the id of the job. `notification`: the name of the notification. `channel`: the name of the channel.
    * `recipient`: the recipient, as its job carries it: plain values of JSON.
    """

    id: str
    notification: str
    channel: str
    recipient: Any


class NotificationFailed(msgspec.Struct, frozen=True):
    """An attempt to send a notification has raised an exception other than Snooze and Discard. The job may be retried.

    * `id`: the id of the job. `notification`: the name of the notification. `channel`: the name of the channel.
    * `recipient`: the recipient, as its job carries it: plain values of JSON.
    * `error`: the exception as a text, such as "SMTPServerDisconnected: Connection unexpectedly closed".
    """

    id: str
    notification: str
    channel: str
    recipient: Any
    error: str
