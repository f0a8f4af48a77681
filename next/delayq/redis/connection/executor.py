"""Sends all calls to Redis. There is one executor for a single server, and one for a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from delayq.core.errors import BackendError
from delayq.redis.calls.call import Call, value_of
from delayq.redis.connection.leaf import ConnectionLost

T = TypeVar("T")


class Started(msgspec.Struct, Generic[T], frozen=True):
    """Calls that were sent, and whose replies have not been read yet.

    `connection` is None if sending failed, with the reason in `lost`, or if `calls` is empty. For a cluster, it is a
    list with the part of each node.
    """

    calls: Sequence[Call[T]]
    connection: Any
    lost: ConnectionLost | None = None


class Executor(ABC):
    """Sends calls in round trips. A round trip has one outcome for each call: a value or an error.

    Calls that had no effect are sent again for a limited time. Calls whose reply was lost are sent again if they are
    repeatable.
    """

    can_block = True
    """True if a call may wait on the server for a new job. False for a cluster, because a node cannot wait for jobs of
    other nodes.
    """

    @property
    @abstractmethod
    def where(self) -> str:
        """The address of the server or servers, without secrets."""

    async def run(self, call: Call[T]) -> T:
        """Send one call and return its parsed reply. Raises the errors of `run_all`, and the error of the call."""
        return value_of((await self.run_all((call,)))[0])

    @abstractmethod
    async def run_all(self, calls: Sequence[Call[T]], *, block: float = 0.0) -> list[T | BackendError]:
        """Send calls in one round trip, and return the outcome of each in the same order: a value or an error.

        `block`: how long a blocking command may wait on the server, in seconds.

        Raises only errors of the whole round trip. BackendUnavailable means that no call had an effect, because no call
        was sent or all calls only read. OutcomeUnknown means that calls were sent but their replies were lost.
        LoginRefused means that the server refused the login before any call was sent.
        """

    @abstractmethod
    async def start(self, calls: Sequence[Call[T]]) -> Started[T]:
        """Send calls without waiting for the replies, so that the caller can do other work in between."""

    @abstractmethod
    async def finish(self, started: Started[T], *, block: float = 0.0) -> list[T | BackendError]:
        """Return the outcomes of started calls, as `run_all` does."""

    @abstractmethod
    async def servers(self) -> Sequence["Executor"]:
        """Return an executor for each server that stores jobs."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Sleep in the thread, or in the event loop, of the executor."""

    def pause(self, seconds: float) -> bool:
        """Block this thread. Return True if a signal has ended the pause.

        The signal must make the `wake_fd` of the executor readable. Only executors whose `can_block` is False have this
        method.
        """
        raise NotImplementedError

    def skip_failed_nodes(self, seconds: float) -> None:  # noqa: B027  # only a cluster has several nodes
        """Wait only once for each node of a cluster: for `seconds` after a failed call, calls to its node fail at once.

        The failed call itself was retried as always.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the idle connections."""
