"""The one place that makes executors."""

from typing import Any

from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import RETRY_TIMEOUT, Executor
from delayq.redis.connection.leaf import TRY_TIMEOUT, Leaf
from delayq.redis.connection.url import Address


def make_executor(
    address: Address,
    *,
    is_async: bool = False,
    retry_timeout: float = RETRY_TIMEOUT,
    try_timeout: float = TRY_TIMEOUT,
    wake_fd: int | None = None,
) -> Executor:
    """Make an executor for one server. The executor connects when its first call is sent.

    `retry_timeout`: how long a failed call is retried, in seconds. `try_timeout`: how long one try may take, in
    seconds. `is_async`: for event loops instead of threads. `wake_fd`: a descriptor that a signal makes readable, which
    ends a blocked read; for threads only.
    """
    leaf: Leaf[Any]
    if is_async:
        from delayq.redis.connection.asyncio import AsyncioLeaf  # programs without asyncio do not need it

        leaf = AsyncioLeaf(address, try_timeout=try_timeout)
    else:
        leaf = BlockingLeaf(address, try_timeout=try_timeout, wake_fd=wake_fd)
    return Executor(leaf, retry_timeout=retry_timeout)
