"""All operations of a client, put together as one class."""

from delayq.redis.operations.base import RefT
from delayq.redis.operations.chains import ChainOperations
from delayq.redis.operations.failed import FailedOperations
from delayq.redis.operations.queues import QueueOperations


class Operations(ChainOperations[RefT], FailedOperations[RefT], QueueOperations[RefT]):
    """All operations of a client. References to jobs have the type RefT.

    AsyncDelayQ inherits this class. DelayQ runs the same coroutines over blocking connections.

    An operation raises the errors that its docstring names. Every operation can also raise these errors of the server:

        BackendUnavailable    the server does not answer; nothing changed
        LoginRefused          the server refused the user, the password or the database; nothing changed
        CallRefused           the server refused the call, for example because of a missing right or a damaged key;
                              import this subclass of BackendError from `delayq.core.errors`
        BackendFull           the server is at its memory limit; nothing changed (only operations that write)
        OutcomeUnknown        the reply was lost, so the change may have happened (only operations that write)
        NotConfirmed          the change happened, but the durability that the setting `durability` requires was not
                              confirmed (only `schedule`, `schedule_many`, `push_raw`, `cancel`, `archive`,
                              `reschedule`, `run_now`, `retry`, `forget` and `queue_set`)

    If an operation needs several round trips, such as `schedule_many` with many jobs or `clear`, "nothing changed" is
    true only of the round trip that failed. The changes of earlier round trips stay.
    """
