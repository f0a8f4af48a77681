"""What is said on the wake-up channel, without waiting for time to pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq.redis.calls.call import Call
from tests.support.engine import Engine

END = b"end"


class Listener:
    """Hears the channel of an engine's prefix."""

    def __init__(self, engine: Engine, pubsub: Any) -> None:
        self._engine = engine
        self._pubsub = pubsub

    def heard(self, call: Call[Any] | None = None) -> list[str]:
        """What was published since the last time, `call` included. A mark of our own follows it and is read up to."""
        if call is not None:
            self._engine.run(call)
        self._engine.client.publish(self._engine.scope.wake, END)
        messages: list[str] = []
        while True:
            message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            if message is None:
                continue
            if message["data"] == END:
                return messages
            messages.append(message["data"].decode())


@contextmanager
def listening(engine: Engine) -> Iterator[Listener]:
    """A listener that is subscribed already."""
    with engine.client.pubsub() as pubsub:
        pubsub.subscribe(engine.scope.wake)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        yield Listener(engine, pubsub)
