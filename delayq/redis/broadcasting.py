"""Messages for whoever listens: one PUBLISH, or one entry of a stream that is not delayq's."""

from __future__ import annotations

from functools import partial

from delayq.redis.calls.call import Command
from delayq.redis.connect import Connector
from delayq.redis.send import send


def publish(connector: Connector, channel: str, message: bytes) -> None:
    """Tell who listens to `channel` now. May arrive twice when an answer is lost."""
    _send(connector, Command(("PUBLISH", channel, message), _nothing))


def append(connector: Connector, stream: str, message: bytes, keep: int) -> None:
    """Add an entry with the one field `message`; of the oldest, about `keep` stay. May arrive twice, too."""
    _send(connector, Command(("XADD", stream, "MAXLEN", "~", keep, "*", "message", message), _nothing))


def _send(connector: Connector, command: Command[None]) -> None:
    connector.call(partial(send, call=command), safe=True)


def _nothing(reply: object) -> None:
    """Nobody asks how many listened."""
