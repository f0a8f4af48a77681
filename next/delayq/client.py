"""The two clients. AsyncDelayQ is the class of the operations; DelayQ has the same methods, not awaited."""

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.operations import Operations

P = ParamSpec("P")
T = TypeVar("T")


class AsyncDelayQ(Operations):
    """The client for asyncio. Event loops may share one."""

    def __init__(self, url: str, *, prefix: str = "delayq") -> None:
        from delayq.redis.connection.asyncio import AsyncioLeaf

        super().__init__(Executor(AsyncioLeaf(Address(url))), Keys(prefix))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def blocking(operation: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]) -> "Blocking[P, T]":
    """Turn an operation into a method of DelayQ. The signature stays; only the `await` goes."""

    @wraps(operation)
    def method(self: "DelayQ", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(operation(self._operations, *args, **kwargs))

    return method


class DelayQ:
    """The blocking client. Threads may share one."""

    def __init__(self, url: str, *, prefix: str = "delayq") -> None:
        self._operations = Operations(Executor(BlockingLeaf(Address(url))), Keys(prefix))

    schedule = blocking(Operations.schedule)
    schedule_many = blocking(Operations.schedule_many)
    cancel = blocking(Operations.cancel)
    stats = blocking(Operations.stats)
    queues = blocking(Operations.queues)
    close = blocking(Operations.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Blocking = Callable[Concatenate[DelayQ, P], T]
