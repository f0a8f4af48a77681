"""The one place that reads urls and makes executors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import TRY_TIMEOUT, Leaf, drive
from delayq.redis.connection.server import RETRY_TIMEOUT, ServerExecutor
from delayq.redis.connection.url import Address

if TYPE_CHECKING:  # programs without sentinels do not need it
    from delayq.redis.connection.sentinel import SentinelAddress


def parse_address(url: str) -> "Address | SentinelAddress":
    """Return the address of a server, or of a service of sentinels. Raises ConfigError."""
    if not url.startswith(("redis+sentinel:", "rediss+sentinel:")):
        return Address(url)
    from delayq.redis.connection.sentinel import SentinelAddress

    return SentinelAddress(url)


def make_executor(
    address: "Address | SentinelAddress",
    *,
    is_async: bool = False,
    retry_timeout: float = RETRY_TIMEOUT,
    try_timeout: float = TRY_TIMEOUT,
    wake_fd: int | None = None,
) -> Executor:
    """Make an executor for one server, or for the primary that sentinels name. It connects with its first call.

    `retry_timeout`: how long a failed call is retried, in seconds. `try_timeout`: how long one try may take, in
    seconds. `is_async`: for event loops instead of threads. `wake_fd`: a descriptor that a signal makes readable, which
    ends a blocked read; for threads only.
    """

    def make_leaf(server: Address, timeout: float) -> Leaf[Any]:
        if is_async:
            from delayq.redis.connection.asyncio import AsyncioLeaf  # programs without asyncio do not need it

            return AsyncioLeaf(server, try_timeout=timeout)
        return BlockingLeaf(server, try_timeout=timeout, wake_fd=wake_fd)

    if isinstance(address, Address):
        return ServerExecutor(make_leaf(address, try_timeout), retry_timeout=retry_timeout)
    from delayq.redis.connection.sentinel import SentinelLeaf

    return ServerExecutor(SentinelLeaf(address, make_leaf, try_timeout=try_timeout), retry_timeout=retry_timeout)


def primary_locator(address: "Address | SentinelAddress") -> Callable[[], Address]:
    """Return a function that finds the server to connect to; the sentinels are asked on each call.

    With sentinels, the function raises ConnectionLost and LoginRefused.
    """
    if isinstance(address, Address):
        return lambda: address
    from delayq.redis.connection.sentinel import Sentinels

    sentinels = Sentinels(address, lambda server, timeout: BlockingLeaf(server, try_timeout=timeout))
    return lambda: drive(sentinels.primary())
