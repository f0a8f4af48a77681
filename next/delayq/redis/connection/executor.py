"""The one way to send calls: several in one trip, scripts loaded when needed, sent again only when that is safe."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from hiredis import pack_command
from redis.exceptions import NoScriptError, ResponseError

from delayq.core.errors import BackendError, BackendUnavailable, CallRefused, OutcomeUnknown
from delayq.redis.commands.call import Call, Word, value_of
from delayq.redis.connection.leaf import ConnectionLost, Leaf

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds after which a call gives up for good."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5


class Started(msgspec.Struct, Generic[T], frozen=True):
    """Calls in flight: sent, and not answered yet."""

    calls: Sequence[Call[T]]
    connection: Any


class Executor:
    """Sends calls over a leaf."""

    def __init__(
        self, leaf: Leaf[Any], *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._leaf = leaf
        self._patience = patience
        self._clock = clock

    async def run(self, call: Call[T]) -> T:
        """Send one call and return what its parser makes of the answer; raises CallRefused when it is an error."""
        return value_of((await self.run_all((call,)))[0])

    async def run_all(self, calls: Sequence[Call[T]], *, block: float = 0.0) -> list[T | BackendError]:
        """Send calls in one trip and return the outcome of each, in order: a value, or the error that it met.

        `block` is how long the server may hold an answer back by order of the call, in seconds.
        Raises only for the trip as a whole: BackendUnavailable when none of the calls had an effect, and OutcomeUnknown
        when they were sent, the answer was lost, and one of them may not be sent twice.
        """
        replies = await self._exchange(calls, [call.words for call in calls], block)
        return await self._read_answers(calls, replies)

    async def start(self, calls: Sequence[Call[T]]) -> Started[T]:
        """Send calls and return at once, so that the caller can work while the server does."""
        request = _pack([call.words for call in calls])
        try:
            return Started(calls, await self._leaf.send(request))
        except ConnectionLost:
            return Started(calls, None)

    async def finish(self, started: Started[T]) -> list[T | BackendError]:
        """Return the outcomes of calls that were started, as `run_all` does.

        Calls whose answer was lost are sent again when all of them may be repeated.
        """
        calls = started.calls
        if started.connection is None:
            return await self.run_all(calls)
        try:
            replies = await self._leaf.receive(started.connection, len(calls))
        except ConnectionLost as lost:
            if not all(call.repeatable for call in calls):
                raise OutcomeUnknown(f"the answer of Redis was lost: {lost}; look before you repeat it") from lost
            return await self.run_all(calls)
        return await self._read_answers(calls, replies)

    async def close(self) -> None:
        """Close the connections."""
        await self._leaf.close()

    async def _read_answers(self, calls: Sequence[Call[T]], replies: list[Any]) -> list[T | BackendError]:
        """Parse replies. A script that the server lacks is sent again, as text: it has had no effect yet."""
        missing = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            late = [calls[n] for n in missing]
            for n, reply in zip(missing, await self._send_texts(late), strict=True):
                replies[n] = reply
        return [_outcome(call, reply) for call, reply in zip(calls, replies, strict=True)]

    async def _send_texts(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Send the texts of scripts. When that fails, only these calls fail: the rest of their trip has its answers."""
        try:
            return await self._exchange(calls, [call.words_with_text() for call in calls], 0.0)
        except BackendError as error:
            return [error] * len(calls)

    async def _exchange(self, calls: Sequence[Call[Any]], commands: list[tuple[Word, ...]], block: float) -> list[Any]:
        """Send and receive, again and again while that is safe and patience lasts."""
        request = _pack(commands)
        may_repeat = all(call.repeatable for call in calls)
        deadline = self._clock() + self._patience
        pause = FIRST_PAUSE
        was_sent = False
        while True:
            try:
                connection = await self._leaf.send(request)
                return await self._leaf.receive(connection, len(commands), block=block)
            except ConnectionLost as lost:
                was_sent = was_sent or lost.sent
                is_last = self._clock() + pause >= deadline
                if was_sent and (is_last or not may_repeat):
                    raise OutcomeUnknown(f"the answer of Redis was lost: {lost}; look before you repeat it") from lost
                if is_last:
                    raise BackendUnavailable(f"Redis cannot be reached: {lost}; nothing was sent") from lost
            await self._leaf.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _outcome(call: Call[T], reply: Any) -> T | BackendError:
    """Turn a raw reply into the outcome of its call."""
    if isinstance(reply, ResponseError):
        return CallRefused(f"Redis refused {call.name}: {reply}")
    if isinstance(reply, BackendError):
        return reply
    return call.parse(reply)


def _pack(commands: list[tuple[Word, ...]]) -> bytes:
    # The stub of hiredis speaks of a tuple of one.
    return b"".join([pack_command(words) for words in commands])  # type: ignore[arg-type]
