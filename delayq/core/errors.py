"""Every error delayq raises, in one tree.

    DelayqError
    ├─ ConfigError              a setting or a connection that cannot be used
    │  └─ UnsafeSetup           refused for safety: open bind, eviction policy
    ├─ InvalidInput             the caller's input; nothing was sent
    │  ├─ InvalidDuration       '15 minuets'
    │  ├─ InvalidTime           no offset, a DST gap, too far ahead
    │  ├─ InvalidName           queue, job name, id
    │  ├─ InvalidPayload        not JSON, NaN, too large
    │  └─ KeyReused             an idempotency key that stands for another request
    ├─ JobNotFound              no job with that id in that queue
    │  └─ FoundElsewhere        no queue was named, and another queue has a job with that id
    │     └─ NotAllSearched     no queue was named, and there are too many queues to search them all
    ├─ QueueNotFound            no queue of that name is known
    ├─ LockNotFound             nobody holds such a unique key
    ├─ WorkerNotFound           no live worker has such a name
    ├─ LimitNotFound            nobody holds, or counts against, such a limit
    ├─ BatchNotFound            no batch with that id
    ├─ ApiKeyNotFound           no key of the HTTP API with that id
    ├─ Conflict                 the job's state, or another job, forbids it
    │  ├─ JobRunning
    │  ├─ JobFinished
    │  ├─ JobHasFailed
    │  ├─ JobNotFailed
    │  └─ QueueInUse            the queue holds jobs, or a worker serves it
    ├─ BackendError             Redis said no
    │  ├─ BackendUnavailable    unreachable, loading, busy: the same call may work later
    │  ├─ BackendFull           maxmemory reached; nothing was written
    │  ├─ BackendDamaged        a key is missing or holds something else; the others are fine
    │  ├─ OutcomeUnknown        the reply was lost; the job may or may not be stored
    │  ├─ NotConfirmed          stored, but not as safely as was asked
    │  └─ ProtocolError         a script answered something this version does not know
    ├─ CommittedUnsent          the transaction is committed; jobs that waited for it were not sent
    ├─ NotDelivered             a channel did not take a notification
    ├─ WorkerVanished           the processes that ran a job died, too often
    ├─ BadEnvelope              bytes that are no envelope
    ├─ UnknownJob               no handler registered for this name
    ├─ ModelMissing             a model that a job refers to is gone
    ├─ UnknownKey               encrypted, and the key is not known here
    └─ BrokenSeal               encrypted, and changed or moved since

A class's docstring is its default message. `exit_code` is what the command line ends with.
Raised *by handlers* are signals, not errors: see `delayq.core.signals`.
"""

from __future__ import annotations

from typing import ClassVar, Final


class DelayqError(Exception):
    """delayq could not do what was asked."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        """`message` says cause and value; `hint` says what to do next."""
        self.message = message or (type(self).__doc__ or "").strip()
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigError(DelayqError):
    """A setting cannot be used."""

    exit_code = 2


class UnsafeSetup(ConfigError):
    """Refused because it would not be safe."""

    exit_code = 6


class InvalidInput(DelayqError):
    """The input cannot be used; nothing was sent."""

    exit_code = 2


class InvalidDuration(InvalidInput):
    """That is no duration."""


class InvalidTime(InvalidInput):
    """That is no usable point in time."""


class InvalidName(InvalidInput):
    """That name or id cannot be used."""


class InvalidPayload(InvalidInput):
    """The payload cannot be sent."""


class KeyReused(InvalidInput):
    """The idempotency key stands for another request."""


class JobNotFound(DelayqError):
    """No job with this id is known in this queue."""

    exit_code = 3


class FoundElsewhere(JobNotFound):
    """No queue was named, the default queue does not have this job, and another queue has one with its id.

    Nothing was done. `queues` are those that have it; `done` is what the call answered for all ids, where it was given
    several.
    """

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        job_id: str = "",
        queues: tuple[str, ...] = (),
        done: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id
        self.queues = queues
        self.done = done


class NotAllSearched(FoundElsewhere):
    """No queue was named, the default queue does not have this job, and only some of the other queues were searched.

    Nothing was done, and `queues` is empty: none of the queues that were searched has the job.
    """


class QueueNotFound(DelayqError):
    """No queue of this name is known."""

    exit_code = 3


class WorkerNotFound(DelayqError):
    """No live worker has this name."""

    exit_code = 3


class LockNotFound(DelayqError):
    """Nobody holds such a lock."""

    exit_code = 3


class LimitNotFound(DelayqError):
    """Nothing is kept for such a limit."""

    exit_code = 3


class BatchNotFound(DelayqError):
    """No batch with this id is known."""

    exit_code = 3


class ApiKeyNotFound(DelayqError):
    """No API key has this id."""

    exit_code = 3


class Conflict(DelayqError):
    """The job, or another job, is in a state that forbids this."""

    exit_code = 4


class JobRunning(Conflict):
    """The job is running."""


class JobFinished(Conflict):
    """The job has finished."""


class JobHasFailed(Conflict):
    """The job has failed; use retry to run it again."""


class JobNotFailed(Conflict):
    """Only a failed job can be retried."""


class PayloadLost(Conflict):
    """The payload of a failed job is gone from Redis, so that there is nothing to retry."""


class QueueInUse(Conflict):
    """The queue holds jobs, or a worker serves it."""


class BackendError(DelayqError):
    """Redis refused the call. `apart`: it concerns a part of it only, one node of a cluster."""

    apart: bool = False


class BackendUnavailable(BackendError):
    """Redis cannot be reached or is not ready. `refuses_writes`: it answers, reads work, and writes do not."""

    exit_code = 5
    refuses_writes: bool = False


class BackendFull(BackendError):
    """Redis is at its memory limit; nothing was written."""

    exit_code = 5


class BackendDamaged(BackendError):
    """A key of delayq is missing or holds something else."""


class OutcomeUnknown(BackendError):
    """The reply was lost, so the outcome is unknown."""

    exit_code = 7


class NotConfirmed(BackendError):
    """It is stored, and the durability that was asked for was not confirmed in time."""

    exit_code = 7

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        done: tuple[object, ...] = (),
        unconfirmed: tuple[object, ...] | None = None,
    ) -> None:
        """`done` is what the call would have answered: a `JobRef` for each job, or the word of a cancel.

        `unconfirmed` are those of them that are not as safe as was asked; all of them, unless told.
        """
        super().__init__(message, hint=hint)
        self.done = done
        self.unconfirmed = done if unconfirmed is None else unconfirmed


class ProtocolError(BackendError):
    """A script answered something this version does not know."""


AWAY: Final = (BackendUnavailable, OutcomeUnknown)
"""Redis cannot be talked to just now, whatever the call: loops and workers wait and come again."""


class CommittedUnsent(DelayqError):
    """The transaction is committed, and jobs that waited for it were not sent."""

    def __init__(self, refs: tuple[object, ...], cause: Exception) -> None:
        """`refs` are the answers their dispatches gave; `cause` is the first error, and the `__cause__` of this one."""
        self.refs = refs
        jobs = "a job that waited for it was" if len(refs) == 1 else f"{len(refs)} jobs that waited for it were"
        super().__init__(
            f"The transaction is committed, and {jobs} not sent: {cause}",
            hint="Do not repeat the transaction; dispatch the jobs again. An outbox leaves no such gap.",
        )


class NotDelivered(DelayqError):
    """A channel did not take a notification."""


class WorkerVanished(DelayqError):
    """The processes that ran this job died without a word, too often."""


class BadEnvelope(DelayqError):
    """These bytes are no envelope."""


class UnknownJob(DelayqError):
    """No handler is registered for this job name."""


class ModelMissing(DelayqError):
    """A model that the job refers to is gone."""


class UnknownKey(DelayqError):
    """The data is encrypted with a key that is not known here."""


class BrokenSeal(DelayqError):
    """The encrypted data was changed, or belongs to another job."""
