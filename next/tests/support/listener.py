"""A subscriber of one channel."""

from typing import Any

import redis


class Listener:
    """Listens from its making on."""

    def __init__(self, server: redis.Redis, channel: str) -> None:
        self._pubsub: Any = server.pubsub()
        self._pubsub.subscribe(channel)
        self.heard()

    def heard(self) -> list[str]:
        """Return what was published since the last look. A ping marks the end, so there is nothing to wait for."""
        self._pubsub.ping("end")
        found: list[str] = []
        while True:
            message = self._pubsub.get_message(timeout=None)
            if message["type"] == "pong":
                return found
            if message["type"] == "message":
                found.append(message["data"])

    def close(self) -> None:
        self._pubsub.close()
