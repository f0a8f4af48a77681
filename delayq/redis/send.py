"""How a call goes over the wire: EVALSHA, and EVAL with the text when the server does not know the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from delayq.redis.calls.call import Call, Command
from delayq.redis.direct import Direct, OneServer, Words
from delayq.redis.faults import AGAIN, REDIS_ERRORS, fault_of, tell_place

if TYPE_CHECKING:
    from delayq.redis.aclients import AsyncClient
    from delayq.redis.clients import Client
    from delayq.redis.connect import Connector

T = TypeVar("T")


def words_of(call: Call[Any] | Command[Any], *, whole: bool = False) -> Words:
    """The command line of a call; `whole` sends the script's text."""
    if isinstance(call, Command):
        return call.words
    head = ("EVAL", call.script.text) if whole else ("EVALSHA", call.script.sha)
    return (*head, len(call.keys), *call.keys, *call.args)


def _execute(client: Any, words: Words) -> Any:
    """One command and its reply, as redis-py does it."""
    return client.execute_command(*words)


def send(client: Client, call: Call[T] | Command[T]) -> T:
    """Send one call and read its answer, by the shortest way the client has.

    Which is asked for by name: `isinstance` goes a long way round for redis-py's classes, which are protocols.
    """
    ask = getattr(client, "ask", None) or partial(_execute, client)
    try:
        try:
            reply = ask(words_of(call))
        except NoScriptError:
            reply = ask(words_of(call, whole=True))
    except ResponseError as error:
        tell_place(error, call.place)
        raise
    return call.parse(reply)


def through(connector: Connector, call: Call[T]) -> T:
    """Send one call over the shared connections, again where that is safe, and read its answer."""
    return connector.call(lambda client: send(client, call), safe=call.resend, reads=call.reads)


async def asend(client: AsyncClient, call: Call[T] | Command[T]) -> T:
    """As `send`, for asyncio."""
    execute: Any = client.execute_command  # not typed by redis-py
    try:
        try:
            reply = await execute(*words_of(call))
        except NoScriptError:
            reply = await execute(*words_of(call, whole=True))
    except ResponseError as error:
        tell_place(error, call.place)
        raise
    return call.parse(reply)


def send_every(client: Client, calls: Sequence[Call[T] | Command[T]]) -> list[T]:
    """Several calls under way together; raises the first error when all have been answered."""
    answers = send_all(client, calls)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def send_all(client: Client, calls: Sequence[Call[Any] | Command[Any]], *commands: tuple[Any, ...]) -> list[Any]:
    """Several calls and then plain commands in one round trip; answers in order, exceptions in their places.

    A call whose script the server forgot is sent again by itself: it did nothing the first time.
    """
    return _answers(client, calls, _exchange(client, [*map(words_of, calls), *commands]))


def post_all(client: OneServer, calls: Sequence[Call[Any]]) -> Callable[[], list[Any]]:
    """As `send_all`, in two steps: they are written, and what this gives waits for the answers. It has to be called."""
    trip = client.post([words_of(call) for call in calls])
    return lambda: _answers(client, calls, trip.replies())


def _answers(client: Client, calls: Sequence[Call[Any] | Command[Any]], replies: list[Any]) -> list[Any]:
    for n, call in enumerate(calls):
        if isinstance(replies[n], NoScriptError):
            replies[n] = _again(client, call)
        elif isinstance(replies[n], Exception):
            tell_place(replies[n], call.place)
        else:
            replies[n] = call.parse(replies[n])
    return replies


def send_apart(client: Client, calls: Sequence[Call[Any]]) -> list[Any]:
    """As `send_all`, for calls that have nothing to do with each other: one that fails keeps no other from its answer.

    Raises only when none got through, so that it is sent again.
    """
    answers = send_all(client, calls)
    if answers and all(isinstance(answer, Exception) and fault_of(answer).kind in AGAIN for answer in answers):
        raise answers[0]
    return answers


def _again(client: Client, call: Call[Any] | Command[Any]) -> Any:
    """The answer, or the error: the others were answered already."""
    try:
        return send(client, call)
    except REDIS_ERRORS as error:
        return error


def _exchange(client: Any, commands: Sequence[Words]) -> list[Any]:
    """Several commands in one round trip, the server's errors in their places."""
    if isinstance(client, Direct):
        return client.exchange(commands)
    pipe = client.pipeline(transaction=False)
    for words in commands:
        pipe.execute_command(*words)
    return list(pipe.execute(raise_on_error=False))
