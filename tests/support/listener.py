"""What is said on a channel, without waiting for time to pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq.redis.calls.call import Call
from tests.support.engine import Engine

END = b"end"


class Listener:
    """Hears one channel."""

    def __init__(self, engine: Engine, pubsub: Any, channel: str) -> None:
        self._engine = engine
        self._pubsub = pubsub
        self._channel = channel

    def heard(self, call: Call[Any] | None = None) -> list[str]:
        """What was published since the last time, `call` included. A mark of our own follows it and is read up to."""
        if call is not None:
            self._engine.run(call)
        self._engine.client.publish(self._channel, END)
        messages: list[str] = []
        while True:
            message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            if message is None:
                continue
            if message["data"] == END:
                return messages
            messages.append(message["data"].decode())


@contextmanager
def listening(engine: Engine, channel: str = "") -> Iterator[Listener]:
    """A listener that is subscribed already; to the wake-ups when no channel is named."""
    channel = channel or engine.scope.wake
    with engine.client.pubsub() as pubsub:
        pubsub.subscribe(channel)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        yield Listener(engine, pubsub, channel)
