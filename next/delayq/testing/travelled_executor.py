"""An executor that gives the scripts the time of the test instead of the time of the server."""

from collections.abc import Callable, Sequence
from typing import Any

from delayq.redis.calls.call import Call
from delayq.redis.connection.executor import Executor, Started


class TravelledExecutor(Executor):
    """Sends calls through another executor. `now_ms`: returns the time of the test, in epoch ms."""

    def __init__(self, inner: Executor, now_ms: Callable[[], int]) -> None:
        self._inner = inner
        self._now_ms = now_ms

    @property
    def where(self) -> str:
        """The address of the server."""
        return self._inner.where

    async def run_all(self, calls: Sequence[Call[Any]], *, block: float = 0.0) -> list[Any]:
        """Send calls with the time of the test."""
        return await self._inner.run_all([self._at_this_time(call) for call in calls], block=block)

    async def start(self, calls: Sequence[Call[Any]]) -> Started[Any]:
        """Send calls with the time of the test, without waiting for the replies."""
        return await self._inner.start([self._at_this_time(call) for call in calls])

    async def finish(self, started: Started[Any], *, block: float = 0.0) -> list[Any]:
        """Return the outcomes of started calls."""
        return await self._inner.finish(started, block=block)

    async def servers(self) -> Sequence[Executor]:
        """Return this executor."""
        return [self]

    async def sleep(self, seconds: float) -> None:
        """Do not sleep, because no job runs while a test waits."""

    async def close(self) -> None:
        """Do nothing, because all clients share the connections."""

    def _at_this_time(self, call: Call[Any]) -> Call[Any]:
        """Return the call, with the time of the test if it is TIME or a script with the argument `now`."""
        if call.words[0] == "TIME":
            seconds, ms = divmod(self._now_ms(), 1000)
            reply = [str(seconds).encode(), str(ms * 1000).encode()]
            return Call(call.words, lambda _: call.parse(reply), call.repeatable, None, call.reads_only)
        if call.script is None or "now" not in call.script.arguments:
            return call
        place = 3 + int(call.words[2]) + call.script.arguments.index("now")
        words = (*call.words[:place], str(self._now_ms()), *call.words[place + 1 :])
        return Call(words, call.parse, call.repeatable, call.script, call.reads_only)
