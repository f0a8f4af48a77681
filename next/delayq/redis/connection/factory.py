"""The one place that reads urls and makes executors."""

from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING, Any

from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import TRY_TIMEOUT, Leaf, drive
from delayq.redis.connection.server import RETRY_TIMEOUT, ServerExecutor
from delayq.redis.connection.url import Address

if TYPE_CHECKING:  # programs with a single server do not need them
    from delayq.redis.connection.sentinel import SentinelAddress
    from delayq.redis.connection.slot_map import ClusterAddress

    AnyAddress = Address | SentinelAddress | ClusterAddress


def parse_address(url: str) -> "AnyAddress":
    """Return the address of a single server, of the primary behind sentinels, or of a cluster. Raises ConfigError."""
    if url.startswith(("redis+sentinel:", "rediss+sentinel:")):
        from delayq.redis.connection.sentinel import SentinelAddress

        return SentinelAddress(url)
    if url.startswith(("redis+cluster:", "rediss+cluster:")):
        from delayq.redis.connection.slot_map import ClusterAddress

        return ClusterAddress(url)
    return Address(url)


def make_executor(
    address: "AnyAddress",
    *,
    is_async: bool = False,
    retry_timeout: float = RETRY_TIMEOUT,
    try_timeout: float = TRY_TIMEOUT,
    node_rest: float = 0.0,
    wake_fd: int | None = None,
) -> Executor:
    """Make an executor for one server, for the primary that sentinels name, or for a cluster.

    The executor connects with its first call.

    `retry_timeout`: how long a failed call is retried, in seconds. `try_timeout`: how long one try may take, in
    seconds. `node_rest`: how long a node of a cluster that did not answer gets no calls, in seconds. `is_async`: for
    event loops instead of threads. `wake_fd`: a descriptor that a signal makes readable, which ends a blocked read; for
    threads only.
    """

    def make_leaf(server: Address, timeout: float) -> Leaf[Any]:
        if is_async:
            from delayq.redis.connection.asyncio import AsyncioLeaf  # programs without asyncio do not need it

            return AsyncioLeaf(server, try_timeout=timeout)
        return BlockingLeaf(server, try_timeout=timeout, wake_fd=wake_fd)

    if isinstance(address, Address):
        return ServerExecutor(make_leaf(address, try_timeout), retry_timeout=retry_timeout)

    from delayq.redis.connection.sentinel import SentinelAddress, SentinelLeaf

    if isinstance(address, SentinelAddress):
        leaf = SentinelLeaf(address, make_leaf, try_timeout=try_timeout)
        return ServerExecutor(leaf, retry_timeout=retry_timeout)

    from delayq.redis.connection.cluster import ClusterExecutor
    from delayq.redis.connection.slot_map import SlotMap

    slots = SlotMap(address, lambda node: ServerExecutor(make_leaf(node, try_timeout), retry_timeout=0))
    leaf_to_sleep = make_leaf(address.node(address.hosts[0]), try_timeout)
    return ClusterExecutor(
        slots,
        where=address.masked,
        retry_timeout=retry_timeout,
        rest=node_rest,
        sleep=leaf_to_sleep.sleep,
        wake_fd=wake_fd,
    )


def locator(address: "AnyAddress") -> Callable[[], Address]:
    """Return a function that finds a server for a subscription: the primary, or one node of a cluster after the other.

    With sentinels, each call asks them. Raises ConnectionLost and LoginRefused. In a cluster, only the nodes that the
    url names are used, because any node passes on the notifications of all.
    """
    if isinstance(address, Address):
        return lambda: address

    def make_leaf(server: Address, timeout: float = TRY_TIMEOUT) -> BlockingLeaf:
        return BlockingLeaf(server, try_timeout=timeout)

    from delayq.redis.connection.sentinel import SentinelAddress, Sentinels

    if isinstance(address, SentinelAddress):
        sentinels = Sentinels(address, make_leaf)
        return lambda: drive(sentinels.primary())

    hosts = cycle(address.hosts)
    return lambda: address.node(next(hosts))
