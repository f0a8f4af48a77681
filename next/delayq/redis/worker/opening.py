"""The first calls of a child or supervisor: create missing parts of the queues, read leases and the server time."""

import time
from collections.abc import Sequence

from delayq.core.options import Options
from delayq.core.resting import RestingQueues
from delayq.redis.calls import delivery, upkeep
from delayq.redis.calls.inspect import server_time_ms
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys


class ServerClock:
    """A clock that shows the time of the server without a call to it.

    It is the clock of this machine plus the difference that the last `set` found.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0

    def set(self, server_ms: int) -> None:
        """Set the clock to the current time of the server, in epoch ms."""
        self._ahead_ms = server_ms - time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Return the time of the server, in epoch ms. Before the first `set`, it is the time of this machine."""
        return time.time_ns() // 1_000_000 + self._ahead_ms


def open_queues(
    executor: Executor,
    keys: Keys,
    queues: Sequence[str],
    options: Options,
    *,
    consumer: str,
    resting: RestingQueues,
    clock: ServerClock,
) -> float:
    """Create missing parts of the queues (stream, consumer group, settings), and set the clock.

    `consumer`: the name to register in each queue; '' for a supervisor. Returns the shortest lease of the queues, in
    seconds. If a queue refuses a call, this is logged, and the other queues are opened. Raises BackendUnavailable and
    OutcomeUnknown.
    """
    tidy = [upkeep.tidy(keys, queue, lease_ms=options.lease_ms) for queue in queues]
    resting.values(queues, drive(executor.run_all(tidy)))
    awake = resting.awake(queues)
    renew = [delivery.renew(keys, queue, consumer, []) for queue in awake]
    renewed = resting.values(awake, drive(executor.run_all(renew)))
    clock.set(drive(executor.run(server_time_ms())))
    return min((reply.lease_ms for reply in renewed), default=options.lease_ms) / 1000
