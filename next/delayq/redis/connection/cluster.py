"""The executor for a Redis Cluster: it sends each call to the node that has the key of the call."""

import os
import select
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from delayq.core.errors import (
    BackendError,
    BackendUnavailable,
    LoginRefused,
    NodeError,
    NodeOutcomeUnknown,
    NodeUnavailable,
    OutcomeUnknown,
)
from delayq.redis.calls.call import Call, command
from delayq.redis.connection.errors import KeysMoving, Redirected
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.connection.server import waiting
from delayq.redis.connection.several import host_in_url, host_named_by
from delayq.redis.connection.slot_map import SlotMap

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.25
"""The first and the longest pause between two tries, in seconds. Each pause is twice the pause before it."""

_ASKING: Final[Call[Any]] = command("ASKING", parse=lambda reply: reply)


class NodeRests(NodeUnavailable):
    """A node failed a moment ago, so the call was not sent."""

    was_skipped = True


class Part(msgspec.Struct, frozen=True):
    """The calls of a trip that one node gets.

    `positions`: their positions in the trip; None = an ASKING before a call. `started`: None = the node rests, or has
    refused the login (`refusal`).
    """

    node: str
    positions: list[int | None]
    started: Started[Any] | None
    refusal: LoginRefused | None = None


class ClusterExecutor(Executor):
    """Sends calls to the nodes of a cluster. Each call of a trip has its own outcome.

    If a node fails, its calls are sent again for up to `retry_timeout` seconds, because another node may take over its
    slots. The conditions for this are those of ServerExecutor. After this time, the outcome of each of these calls is a
    NodeError. A call without a key goes to the node of the previous call of its trip, or to any primary if it is the
    first call.

    `rest`: after a failure, the calls to a node fail at once for this time, in seconds, so that one node does not delay
    the work for others. `sleep`: sleeps in the thread or event loop of the caller. `wake_fd`: a descriptor that becomes
    readable when a signal arrives, which ends a pause; None = nothing ends it.
    """

    can_block = False

    def __init__(
        self,
        slots: SlotMap,
        *,
        where: str,
        retry_timeout: float,
        rest: float,
        sleep: Callable[[float], Awaitable[None]],
        wake_fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._where = where
        self._retry_timeout = retry_timeout
        self._rest = rest
        self._sleep = sleep
        self._wake_fds = [] if wake_fd is None else [wake_fd]
        self._clock = clock
        self._skip = 0.0
        self._skipped_until: dict[str, float] = {}

    @property
    def where(self) -> str:
        """The address of the cluster, without secrets."""
        return self._where

    async def run_all(self, calls: Sequence[Call[T]], *, block: float = 0.0) -> list[T | BackendError]:
        """Send calls in one round trip for each node; see Executor. The nodes work at the same time."""
        deadline = self._clock() + self._retry_timeout
        return await self._collect(calls, await self._send_first(calls, deadline), deadline, block)

    async def start(self, calls: Sequence[Call[T]]) -> Started[T]:
        """Send calls without waiting for the replies; see Executor."""
        return Started(calls, await self._send(calls, range(len(calls)), self._clock() + self._retry_timeout))

    async def finish(self, started: Started[T], *, block: float = 0.0) -> list[T | BackendError]:
        """Return the outcomes of started calls."""
        return await self._collect(started.calls, started.connection, self._clock() + self._retry_timeout, block)

    async def servers(self) -> list[Executor]:
        """Return the executors of the primaries."""
        await self._slots.refresh(self._clock() + self._retry_timeout)
        return [self._slots.executor(node) for node in self._slots.primaries()]

    async def sleep(self, seconds: float) -> None:
        """Sleep in the thread, or in the event loop, of the executor."""
        await self._sleep(seconds)

    def pause(self, seconds: float) -> bool:
        """Block this thread; see Executor."""
        readable, _, _ = select.select(self._wake_fds, [], [], max(seconds, 0))
        for descriptor in readable:
            os.read(descriptor, 4096)
        return bool(readable)

    def skip_failed_nodes(self, seconds: float) -> None:
        """Wait only once for each node; see Executor."""
        self._skip = seconds

    async def close(self) -> None:
        """Close the idle connections."""
        await self._slots.close()

    async def _send_first(self, calls: Sequence[Call[Any]], deadline: float) -> list[Part]:
        """Send the calls. If no node answers, try again until the deadline. With a `rest`, try only once.

        The first try takes up to half of the time, so that all nodes are asked twice. Raises BackendUnavailable.
        """
        pause = FIRST_PAUSE
        until = deadline if self._rest else deadline - self._retry_timeout / 2
        while True:
            try:
                return await self._send(calls, range(len(calls)), until)
            except BackendUnavailable as error:
                if self._rest or self._clock() + pause >= deadline:
                    raise
                until = deadline
                if pause == FIRST_PAUSE:
                    waiting.debug("%s Trying again …", error.message)
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send(self, calls: Sequence[Call[Any]], positions: Iterable[int], until: float) -> list[Part]:
        """Send the calls at these positions, grouped by node.

        `until`: time of the clock by which the map must be read. Raises BackendUnavailable if this fails.
        """
        await self._slots.refresh(until)
        of_node: dict[str, list[int]] = {}
        node = ""
        for position in positions:
            key = calls[position].key
            node = self._slots.owner(key) if key is not None else node or self._slots.primaries()[0]
            of_node.setdefault(node, []).append(position)
        return [await self._start_part(calls, node, places) for node, places in of_node.items()]

    async def _start_part(self, calls: Sequence[Call[Any]], node: str, positions: Sequence[int | None]) -> Part:
        if self._is_resting(node):
            return Part(node, list(positions), None)
        sent = [_ASKING if position is None else calls[position] for position in positions]
        try:
            return Part(node, list(positions), await self._slots.executor(node).start(sent))
        except LoginRefused as error:  # if all nodes refuse the login, the next `refresh` raises the error
            self._slots.note_failure(node)
            return Part(node, list(positions), None, error)

    def _is_resting(self, node: str) -> bool:
        failed_at = self._slots.failed_at(node)
        if failed_at is None:
            return False
        return self._clock() < max(failed_at + self._rest, self._skipped_until.get(node, 0.0))

    async def _collect(
        self, calls: Sequence[Call[T]], parts: list[Part], deadline: float, block: float
    ) -> list[T | BackendError]:
        """Read the replies of all parts, and send calls again while this is safe and may help."""
        outcomes: list[Any] = [None] * len(calls)
        unsure: dict[int, BackendError] = {}
        nodes: dict[int, str] = {}
        pause = FIRST_PAUSE
        began = deadline - self._retry_timeout
        while True:
            for part in parts:
                answers = await self._finish_part(part, block)
                for position, answer in zip(part.positions, answers, strict=True):
                    if position is not None:
                        outcomes[position] = answer
                        nodes[position] = part.node
                        if isinstance(answer, OutcomeUnknown):
                            unsure[position] = answer
            took = self._clock() - began  # the next try of the same node may take as long
            again = _to_repeat(calls, outcomes)
            if not again or self._clock() + pause >= deadline:
                break
            if not all(isinstance(outcomes[position], Redirected) for position in again):
                if pause == FIRST_PAUSE:
                    waiting.debug("%s Trying again …", outcomes[again[0]].message)
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            if self._clock() + took >= deadline and not await self._wait_for_move(calls, parts, again, deadline):
                break
            began = self._clock()
            try:
                parts = await self._send_again(calls, outcomes, again, deadline - took)
            except BackendUnavailable:  # no node answers
                if self._rest:
                    break
                parts = []
        self._skip_nodes({nodes[position] for position, outcome in enumerate(outcomes) if _is_silence(outcome)})
        return [_of_node(outcome, unsure.get(position), nodes[position]) for position, outcome in enumerate(outcomes)]

    def _skip_nodes(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if self._slots.failed_at(node) is not None:
                self._skipped_until[node] = self._clock() + self._skip

    async def _wait_for_move(
        self, calls: Sequence[Call[Any]], parts: list[Part], positions: Sequence[int], deadline: float
    ) -> bool:
        """Return True if another node has the keys of one of these calls. Wait for this until the deadline.

        With a `rest` (the processes of a worker), do not wait, because they repeat their calls in any case, and the
        jobs of other nodes must not be late. After `skip_failed_nodes` (commands), do not wait either, because the
        command may have waited before, to read the map.
        """
        while not await self._has_moved(calls, parts, positions, deadline):
            if self._rest or self._skip or self._clock() + LONGEST_PAUSE >= deadline:
                return False
            await self._sleep(LONGEST_PAUSE)
            self._slots.expire()
        return True

    async def _has_moved(
        self, calls: Sequence[Call[Any]], parts: list[Part], positions: Sequence[int], deadline: float
    ) -> bool:
        """Return True if another node has the keys of one of these calls by now."""
        try:
            await self._slots.refresh(deadline)
        except BackendUnavailable:
            return False
        sent_to = {position: part.node for part in parts for position in part.positions}
        keys = {position: key for position in positions if (key := calls[position].key) is not None}
        return any(self._slots.owner(key) != sent_to.get(position) for position, key in keys.items())

    async def _finish_part(self, part: Part, block: float) -> Sequence[Any]:
        """Return the outcomes of a part. If the node did not answer, all of them are the same error."""
        if part.started is None:
            self._slots.expire()  # another node may have its slots by now
            error: BackendError = part.refusal or NodeRests(
                f"Redis at {self._slots.executor(part.node).where} failed a moment ago. The request was not sent.",
                hint="Try again later.",
            )
            return [error] * len(part.positions)
        try:
            answers = await self._slots.executor(part.node).finish(part.started, block=block)
        except (BackendUnavailable, OutcomeUnknown) as lost:
            self._slots.note_failure(part.node)
            return [lost] * len(part.positions)
        self._slots.note_answer(part.node)
        for answer in answers:
            if isinstance(answer, Redirected):
                host, port = answer.node
                answer.node = (host_named_by(part.node, host), port)
                if not answer.is_ask:
                    self._slots.assign(answer.slot, *answer.node)
            elif isinstance(answer, BackendUnavailable):  # for example, it has become a replica
                self._slots.expire()
        return answers

    async def _send_again(
        self, calls: Sequence[Call[Any]], outcomes: Sequence[Any], positions: Sequence[int], until: float
    ) -> list[Part]:
        """Send the calls at these positions again. An ASK names the node that gets its call this time only."""
        asking: dict[str, list[int | None]] = {}
        plain: list[int] = []
        target = ""
        for position in positions:
            outcome = outcomes[position]
            if calls[position].key is not None:
                is_ask = isinstance(outcome, Redirected) and outcome.is_ask
                target = host_in_url(*outcome.node) if is_ask else ""
                if is_ask:
                    asking.setdefault(target, []).append(None)
            if target:
                asking[target].append(position)
            else:
                plain.append(position)
        as_text = [_with_text(call) for call in calls] if asking else []
        asked = [await self._start_part(as_text, node, places) for node, places in asking.items()]
        return [*asked, *(await self._send(calls, plain, until) if plain else [])]


def _to_repeat(calls: Sequence[Call[Any]], outcomes: Sequence[Any]) -> list[int]:
    """Return the positions of the calls to send again, each with the calls without a key that follow it."""
    positions = []
    repeats = False
    for position, (call, outcome) in enumerate(zip(calls, outcomes, strict=True)):
        if call.key is not None or position == 0:
            repeats = _may_help(call, outcome)
        if repeats:
            positions.append(position)
    return positions


def _may_help(call: Call[Any], outcome: Any) -> bool:
    """Return True if it is safe to send the call again, and another answer is possible."""
    if isinstance(outcome, NodeRests | LoginRefused):
        return False
    if isinstance(outcome, OutcomeUnknown):
        return call.repeatable
    return isinstance(outcome, Redirected | BackendUnavailable)


def _is_silence(outcome: Any) -> bool:
    """Return True if the node of a call did not answer after all tries."""
    return isinstance(outcome, BackendUnavailable | OutcomeUnknown) and not isinstance(outcome, NodeRests)


def _with_text(call: Call[T]) -> Call[T]:
    """Return a call that a node without the script can execute: ASKING is valid for one command only."""
    return Call(call.words_with_text(), call.parse, call.repeatable, reads_only=call.reads_only)


def _of_node(outcome: Any, unsure: BackendError | None, node: str) -> Any:
    """Return a value as it is, and an error of a node as a NodeError.

    `unsure`: an OutcomeUnknown of an earlier try of the same call; None = each earlier try had no effect.
    """
    if not isinstance(outcome, BackendError):
        return outcome
    error = _node_error(unsure or outcome)
    if isinstance(error, NodeError) and not isinstance(outcome, KeysMoving | Redirected):
        error.node = node
    return error


def _node_error(error: BackendError) -> BackendError:
    if isinstance(error, NodeError):
        return error
    if isinstance(error, OutcomeUnknown):
        return NodeOutcomeUnknown(error.message, hint=error.hint)
    if isinstance(error, BackendUnavailable | LoginRefused):
        return NodeUnavailable(error.message, hint=error.hint)
    if isinstance(error, Redirected):
        return NodeUnavailable(
            "The nodes of the Redis Cluster do not agree which of them has the keys. Nothing was written.",
            hint="Try again later.",
        )
    return error
