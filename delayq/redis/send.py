"""How a call goes over the wire: EVALSHA, and EVAL with the text when the server does not know the script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError

from delayq.redis.calls.call import Call, Command

if TYPE_CHECKING:
    from delayq.redis.aclients import AsyncClient
    from delayq.redis.clients import Client
    from delayq.redis.connect import Connector

T = TypeVar("T")


def words_of(call: Call[Any] | Command[Any], *, whole: bool = False) -> tuple[Any, ...]:
    """The command line of a call; `whole` sends the script's text."""
    if isinstance(call, Command):
        return call.words
    head = ("EVAL", call.script.text) if whole else ("EVALSHA", call.script.sha)
    return (*head, len(call.keys), *call.keys, *call.args)


def _execute(client: Any, words: tuple[Any, ...]) -> Any:
    """redis-py types this method of its clients and pipelines not at all."""
    return client.execute_command(*words)


def send(client: Client, call: Call[T] | Command[T]) -> T:
    """Send one call and read its answer."""
    try:
        reply = _execute(client, words_of(call))
    except NoScriptError:
        reply = _execute(client, words_of(call, whole=True))
    return call.parse(reply)


def through(connector: Connector, call: Call[T]) -> T:
    """Send one call over the shared connections, again where that is safe, and read its answer."""
    return connector.call(lambda client: send(client, call), safe=call.resend, reads=call.reads)


async def asend(client: AsyncClient, call: Call[T] | Command[T]) -> T:
    """As `send`, for asyncio."""
    try:
        reply = await _execute(client, words_of(call))
    except NoScriptError:
        reply = await _execute(client, words_of(call, whole=True))
    return call.parse(reply)


def send_all(client: Client, calls: Sequence[Call[Any]], *commands: tuple[Any, ...]) -> list[Any]:
    """Several calls and then plain commands in one round trip; answers in order, exceptions in their places.

    A call whose script the server forgot is sent again by itself: it did nothing the first time.
    """
    pipe = client.pipeline(transaction=False)
    for call in calls:
        _execute(pipe, words_of(call))
    for words in commands:
        _execute(pipe, words)
    replies = pipe.execute(raise_on_error=False)
    for n, call in enumerate(calls):
        if isinstance(replies[n], NoScriptError):
            replies[n] = send(client, call)
        elif not isinstance(replies[n], Exception):
            replies[n] = call.parse(replies[n])
    return list(replies)
