"""The first calls of a child or supervisor: create missing parts of the queues, read leases and the server time."""

from collections.abc import Sequence

from delayq.core.errors import BackendError
from delayq.core.options import Options
from delayq.core.resting import RestingQueues
from delayq.redis.calls import delivery, upkeep
from delayq.redis.calls.inspect import server_time_ms
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys
from delayq.redis.repair import warn_of_repair
from delayq.redis.server_clock import ServerClock


def create_missing(
    executor: Executor, keys: Keys, queues: Sequence[str], options: Options
) -> list[upkeep.Tidied | BackendError]:
    """Create missing parts of the queues, and return the outcome for each queue. A repair is logged."""
    tidy = [upkeep.tidy(keys, queue, lease_ms=options.lease_ms) for queue in queues]
    outcomes = drive(executor.run_all(tidy))
    for queue, tidied in zip(queues, outcomes, strict=True):
        if isinstance(tidied, upkeep.Tidied):
            warn_of_repair(queue, tidied, {})
    return outcomes


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
    """Create missing parts of the queues (stream, consumer group, settings), and set `clock` to server time.

    `consumer`: the name to register in each queue; '' for a supervisor. Returns the shortest lease of the queues, in
    seconds. If a call for one queue fails, the error is logged, and the other queues are opened. Raises
    BackendUnavailable or OutcomeUnknown if Redis does not answer.
    """
    for queue, created in zip(queues, create_missing(executor, keys, queues, options), strict=True):
        if isinstance(created, BackendError):
            resting.rest(queue, created, is_repeated=False)
    awake = resting.awake(queues)
    renew = [delivery.renew(keys, queue, consumer, []) for queue in awake]
    renewed = resting.values(awake, drive(executor.run_all(renew)))
    clock.set(drive(executor.run(server_time_ms())))
    return min((reply.lease_ms for reply in renewed), default=options.lease_ms) / 1000
