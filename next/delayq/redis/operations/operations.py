"""All operations of a client, put together as one class."""

from delayq.redis.operations.base import RefT
from delayq.redis.operations.failed import FailedOperations
from delayq.redis.operations.queues import QueueOperations
from delayq.redis.operations.scheduling import SchedulingOperations


class Operations(SchedulingOperations[RefT], FailedOperations[RefT], QueueOperations[RefT]):
    """All operations. References to jobs have the type RefT.

    AsyncDelayQ is this class. DelayQ runs the same coroutines over blocking connections.
    """
