"""The one way to send calls: several in one trip, scripts loaded when needed, sent again only when that is safe."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from hiredis import pack_command
from redis.exceptions import NoScriptError, ResponseError

from delayq.core.errors import BackendError, BackendUnavailable, OutcomeUnknown
from delayq.redis.calls.call import Call, Word, value_of
from delayq.redis.connection.errors import is_not_ready, is_of_replica, refusal
from delayq.redis.connection.leaf import ConnectionLost, Leaf

T = TypeVar("T")

RETRY_TIMEOUT: Final = 5.0
"""Seconds after which a call gives up for good."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5


class Started(msgspec.Struct, Generic[T], frozen=True):
    """Calls in flight: sent, and not answered yet. Without a connection `lost` says why, or there are no calls."""

    calls: Sequence[Call[T]]
    connection: Any
    lost: ConnectionLost | None = None


class Executor:
    """Sends calls over a leaf.

    A trip has one outcome for each call, a value or an error. A call that the server answers with "not ready" had no
    effect, so it is asked again for up to `retry_timeout` seconds; so is what was not sent, or may be repeated.
    """

    def __init__(
        self, leaf: Leaf[Any], *, retry_timeout: float = RETRY_TIMEOUT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._leaf = leaf
        self._retry_timeout = retry_timeout
        self._clock = clock

    @property
    def where(self) -> str:
        """The address of the server, without secrets."""
        return self._leaf.where

    async def run(self, call: Call[T]) -> T:
        """Send one call and return what its parser makes of the answer; raises CallRefused when it is an error."""
        return value_of((await self.run_all((call,)))[0])

    async def run_all(
        self, calls: Sequence[Call[T]], *, block: float = 0.0, was_sent: bool = False
    ) -> list[T | BackendError]:
        """Send calls in one trip and return the outcome of each, in order: a value, or the error that it met.

        `block` is how long the server may hold an answer back by order of the call, in seconds. `was_sent`: an earlier
        try of the same calls may have reached the server.
        Raises only for the trip as a whole: BackendUnavailable when none of the calls had an effect, because none was
        sent or all of them only read, and OutcomeUnknown when the answer to calls that were sent was lost.
        """
        if not calls:
            return []
        deadline = self._clock() + self._retry_timeout
        replies = await self._exchange(calls, [call.words for call in calls], block, deadline, was_sent=was_sent)
        return await self._outcomes(calls, replies, deadline)

    async def start(self, calls: Sequence[Call[T]]) -> Started[T]:
        """Send calls and return at once, so that the caller can work while the server does."""
        if not calls:
            return Started(calls, None)
        try:
            return Started(calls, await self._leaf.send(_pack([call.words for call in calls])))
        except ConnectionLost as lost:
            return Started(calls, None, lost)

    async def finish(self, started: Started[T]) -> list[T | BackendError]:
        """Return the outcomes of calls that were started, as `run_all` does.

        Calls whose answer was lost are sent again when all of them may be repeated.
        """
        calls, lost = started.calls, started.lost
        if started.connection is not None:
            try:
                replies = await self._leaf.receive(started.connection, len(calls))
                return await self._outcomes(calls, replies, self._clock() + self._retry_timeout)
            except ConnectionLost as error:
                lost = error
        if lost and lost.sent and not _may_repeat(calls):
            raise self._lost(calls, lost, was_sent=True) from lost
        return await self.run_all(calls, was_sent=lost is not None and lost.sent)

    async def sleep(self, seconds: float) -> None:
        """Wait, as the leaf waits: a thread or an event loop."""
        await self._leaf.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._leaf.close()

    async def _outcomes(self, calls: Sequence[Call[T]], replies: list[Any], deadline: float) -> list[T | BackendError]:
        """Parse replies, after asking again where that helps."""
        if [reply for reply in replies if isinstance(reply, Exception)]:
            await self._ask_refused_again(calls, replies, deadline)
        return [
            self._error(call, reply) if isinstance(reply, Exception) else call.parse(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def _ask_refused_again(self, calls: Sequence[Call[Any]], replies: list[Any], deadline: float) -> None:
        """Load missing scripts, and wait for a server that is not ready, by asking again."""
        missing = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            await self._ask_again(calls, replies, missing, deadline)
        pause = FIRST_PAUSE
        while waiting := [n for n, reply in enumerate(replies) if _is_error(reply) and is_not_ready(reply)]:
            if self._clock() + pause >= deadline:
                break
            await self._leaf.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._ask_again(calls, replies, waiting, deadline)

    async def _ask_again(
        self, calls: Sequence[Call[Any]], replies: list[Any], places: list[int], deadline: float
    ) -> None:
        """Send some calls again: they had no effect. Scripts go as text, which the server may lack.

        When that fails, only these calls fail: the rest of their trip has its answers.
        """
        if any(is_of_replica(replies[n]) for n in places):
            await self._leaf.close()  # after a failover, the same address leads to the new primary
        again = [calls[n] for n in places]
        try:
            answers = await self._exchange(again, [call.words_with_text() for call in again], 0.0, deadline)
        except BackendError as error:
            answers = [error] * len(again)
        for n, answer in zip(places, answers, strict=True):
            replies[n] = answer

    async def _exchange(
        self,
        calls: Sequence[Call[Any]],
        commands: list[tuple[Word, ...]],
        block: float,
        deadline: float,
        *,
        was_sent: bool = False,
    ) -> list[Any]:
        """Send and receive, again and again while that is safe and before the deadline."""
        request = _pack(commands)
        may_repeat = _may_repeat(calls)
        pause = FIRST_PAUSE
        while True:
            started = self._clock()
            try:
                connection = await self._leaf.send(request)
                return await self._leaf.receive(connection, len(commands), block=block)
            except ConnectionLost as lost:
                was_sent = was_sent or lost.sent
                took = self._clock() - started  # the next try may take as long
                is_last = self._clock() + pause + took >= deadline
                if was_sent and (is_last or not may_repeat):
                    raise self._lost(calls, lost, was_sent=True) from lost
                if is_last:
                    raise self._lost(calls, lost, was_sent=False) from lost
            await self._leaf.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _error(self, call: Call[Any], error: Exception) -> BackendError:
        """Translate an error of a connection into the error for the caller."""
        if isinstance(error, ResponseError):
            return refusal(call.name, error, self.where)
        assert isinstance(error, BackendError)
        return error

    def _lost(self, calls: Sequence[Call[Any]], lost: ConnectionLost, *, was_sent: bool) -> BackendError:
        """Return the error of a trip that got no answer in any try."""
        reads_only = all(call.reads_only for call in calls)
        if was_sent and not reads_only:
            return OutcomeUnknown(
                f"Redis at {self.where} gave no answer to a call that was sent: {lost}. Its outcome is unknown.",
                hint="Look the job up by its id before you repeat the call.",
            )
        what = "gave no answer" if was_sent else "cannot be reached"
        effect = "" if reads_only else " Nothing was sent."
        return BackendUnavailable(
            f"Redis at {self.where} {what}: {lost}.{effect}",
            hint="Check that the server runs and that the url is right.",
        )


def _is_error(reply: Any) -> bool:
    return isinstance(reply, ResponseError)


def _may_repeat(calls: Sequence[Call[Any]]) -> bool:
    return not [call for call in calls if not call.repeatable]


def _pack(commands: list[tuple[Word, ...]]) -> bytes:
    # The stub of hiredis speaks of a tuple of one.
    return b"".join([pack_command(words) for words in commands])  # type: ignore[arg-type]
