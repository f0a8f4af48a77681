"""Reads the pending deliveries of a consumer: jobs that were delivered to it and are not settled."""

from collections.abc import Sequence

from delayq.backends.values import Delivery
from delayq.core.errors import BackendError
from delayq.core.resting import RestingQueues
from delayq.redis.calls import delivery as calls
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys


def read_all_pending(
    executor: Executor, keys: Keys, queues: Sequence[str], consumer: str, *, resting: RestingQueues
) -> list[Delivery]:
    """Return all pending deliveries of a consumer, read in pages: one page of each queue per round trip.

    If Redis answers the read of a queue with an error, the error is logged, the queue rests (callers leave it out for a
    second), and the other queues are read. Raises BackendUnavailable if Redis does not answer.
    """
    found: list[Delivery] = []
    after = dict.fromkeys(queues, calls.FIRST_PENDING)
    while after:
        requests = [calls.read_pending(keys, queue, consumer, after=entry) for queue, entry in after.items()]
        outcomes = drive(executor.run_all(requests))
        resting.values(list(after), outcomes)
        pages = [page for page in outcomes if not isinstance(page, BackendError)]
        found += [delivery for page in pages for delivery in page]
        after = {page[-1].queue: page[-1].entry for page in pages if len(page) == calls.PENDING_PAGE}
    return found
