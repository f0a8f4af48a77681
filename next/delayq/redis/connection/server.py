"""The executor for one server: it loads missing scripts, and resends calls only when that is safe."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from hiredis import pack_command
from redis.exceptions import NoScriptError, ResponseError

from delayq.core.errors import BackendError, BackendUnavailable, LoginRefused, OutcomeUnknown
from delayq.redis.calls.call import Call, Word, value_of
from delayq.redis.connection.errors import hint_of_lost, is_not_ready, may_be_replaced, refusal
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.connection.leaf import ConnectionLost, Leaf

T = TypeVar("T")

waiting: Final = logging.getLogger("delayq.redis.waiting")
"""Reports at DEBUG that a call is tried again. Commands print the first report."""

RETRY_TIMEOUT: Final = 5.0
"""How long a failed call is retried, in seconds."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
"""The first and the longest pause between two tries, in seconds. Each pause is twice the pause before it."""


class ServerExecutor(Executor):
    """Sends calls over a leaf: the connections to one server, which are blocking or asyncio connections.

    These calls are sent again, for up to `retry_timeout` seconds:

    * calls that the server answered with "not ready", because they had no effect
    * calls that were not sent
    * calls whose reply was lost, if they are repeatable
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

    async def run_all(
        self, calls: Sequence[Call[T]], *, block: float = 0.0, was_sent: bool = False
    ) -> list[T | BackendError]:
        """Send calls in one round trip; see Executor.

        `was_sent`: an earlier try of the same calls may have reached the server.
        """
        if not calls:
            return []
        deadline = self._clock() + self._retry_timeout
        replies = await self._exchange(calls, [call.words for call in calls], block, deadline, was_sent=was_sent)
        return await self._outcomes(calls, replies, deadline)

    async def ask(self, call: Call[T], *, within: float) -> T:
        """Send a call that only reads, and wait at most `within` seconds for its reply. The call is not retried."""
        try:
            connection = await self._leaf.send(_pack([call.words]), within=within)
            replies = await self._leaf.receive(connection, 1, within=within)
        except ConnectionLost as lost:
            raise self._lost([call], lost, was_sent=lost.sent) from lost
        return value_of((await self._outcomes([call], replies, self._clock()))[0])

    async def start(self, calls: Sequence[Call[T]]) -> Started[T]:
        """Send calls without waiting for the replies; see Executor."""
        if not calls:
            return Started(calls, None)
        try:
            return Started(calls, await self._leaf.send(_pack([call.words for call in calls])))
        except ConnectionLost as lost:
            return Started(calls, None, lost)

    async def finish(self, started: Started[T], *, block: float = 0.0) -> list[T | BackendError]:
        """Return the outcomes of started calls.

        If the connection was lost, all calls are sent again, provided that none was sent or that all are repeatable.
        """
        calls, lost = started.calls, started.lost
        if started.connection is not None:
            try:
                replies = await self._leaf.receive(started.connection, len(calls), block=block)
                return await self._outcomes(calls, replies, self._clock() + self._retry_timeout)
            except ConnectionLost as error:
                lost = error
        if lost and ((lost.sent and not _may_repeat(calls)) or not self._retry_timeout):
            raise self._lost(calls, lost, was_sent=lost.sent) from lost
        return await self.run_all(calls, was_sent=lost is not None and lost.sent)

    async def servers(self) -> Sequence[Executor]:
        """Return this executor."""
        return [self]

    async def sleep(self, seconds: float) -> None:
        """Sleep in the thread, or in the event loop, of the leaf."""
        await self._leaf.sleep(seconds)

    async def close(self) -> None:
        """Close the idle connections."""
        await self._leaf.close()

    async def _outcomes(self, calls: Sequence[Call[T]], replies: list[Any], deadline: float) -> list[T | BackendError]:
        """Parse the replies. Before that, send calls again whose error a retry may solve."""
        if [reply for reply in replies if isinstance(reply, Exception)]:
            await self._ask_refused_again(calls, replies, deadline)
        return [
            self._error(call, reply) if isinstance(reply, Exception) else call.parse(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def _ask_refused_again(self, calls: Sequence[Call[Any]], replies: list[Any], deadline: float) -> None:
        """Send refused calls again: with the text of a missing script, or until the server is ready."""
        missing = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            await self._ask_again(calls, replies, missing, deadline)
        pause = FIRST_PAUSE
        while waiting_calls := [n for n, reply in enumerate(replies) if _is_error(reply) and is_not_ready(reply)]:
            if self._clock() + pause >= deadline:
                break
            if pause == FIRST_PAUSE:
                waiting.debug("Redis at %s is not ready: %s; trying again …", self.where, replies[waiting_calls[0]])
            await self._leaf.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._ask_again(calls, replies, waiting_calls, deadline)

    async def _ask_again(
        self, calls: Sequence[Call[Any]], replies: list[Any], places: list[int], deadline: float
    ) -> None:
        """Send the calls at these positions again, because they had no effect. Scripts are sent as text.

        If this fails, only these calls fail. The other calls of the round trip keep their replies.
        """
        if any(may_be_replaced(replies[n]) for n in places):
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
        """Send the calls and receive their replies. Retry until the deadline, but only while this is safe."""
        request = _pack(commands)
        may_repeat = _may_repeat(calls)
        pause = FIRST_PAUSE
        while True:
            started = self._clock()
            try:
                connection = await self._leaf.send(request)
                return await self._leaf.receive(connection, len(commands), block=block)
            except LoginRefused as refused:
                if not was_sent or _only_read(calls):
                    raise
                raise self._unknown("did not reply to a call, and then refused the login") from refused
            except ConnectionLost as lost:
                was_sent = was_sent or lost.sent
                took = self._clock() - started  # the next try may take as long
                is_last = self._clock() + pause + took >= deadline
                if was_sent and (is_last or not may_repeat):
                    raise self._lost(calls, lost, was_sent=True) from lost
                if is_last:
                    raise self._lost(calls, lost, was_sent=False) from lost
                if pause == FIRST_PAUSE:
                    waiting.debug("Redis at %s does not answer: %s; trying again …", self.where, lost)
            await self._leaf.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _error(self, call: Call[Any], error: Exception) -> BackendError:
        """Translate an error reply into a delayq error."""
        if isinstance(error, ResponseError):
            return refusal(call.name, error, self.where)
        assert isinstance(error, BackendError)
        return error

    def _lost(self, calls: Sequence[Call[Any]], lost: ConnectionLost, *, was_sent: bool) -> BackendError:
        """Return the error of a round trip that got no reply in any try."""
        if was_sent and not _only_read(calls):
            return self._unknown(f"did not reply to a call: {lost}")
        what = "did not reply" if was_sent else "cannot be reached"
        effect = "" if _only_read(calls) else " The request was not sent."
        return BackendUnavailable(
            f"Redis at {self.where} {what}: {lost}.{effect}",
            hint=hint_of_lost(str(lost), self.where),
        )

    def _unknown(self, what: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Redis at {self.where} {what}. The outcome of the call is unknown.",
            hint="Check whether the call had an effect, for example by the id of the job, before you repeat the call.",
        )


def _only_read(calls: Sequence[Call[Any]]) -> bool:
    return all(call.reads_only for call in calls)


def _is_error(reply: Any) -> bool:
    return isinstance(reply, ResponseError)


def _may_repeat(calls: Sequence[Call[Any]]) -> bool:
    return not [call for call in calls if not call.repeatable]


def _pack(commands: list[tuple[Word, ...]]) -> bytes:
    # The type stub of hiredis declares a tuple with one element.
    return b"".join([pack_command(words) for words in commands])  # type: ignore[arg-type]
