"""Wake-up hints: scripts publish `<queue> <due_ms>` when the first job of a queue became an earlier one.

A hint may be lost. A listener also looks at intervals; a hint only makes it look sooner.
"""

import time
from collections.abc import Callable
from typing import Final

from redis.exceptions import RedisError

from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys

EXACT: Final = 0.002
"""Seconds at the end of a wait that are slept, because waiting for a socket counts in whole milliseconds."""

RECONNECT_PAUSE: Final = 0.5


class Hints:
    """A subscription to the channel of wake-ups."""

    def __init__(self, address: Address, keys: Keys, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._connection = address.blocking_connection()
        self._channel = keys.wake
        self._sleep = sleep

    def wait(self, seconds: float) -> set[str]:
        """Wait until a hint arrives or the time is over. Return the names of the queues to look at."""
        try:
            if not self._connection.is_connected:
                self._subscribe()
            if not self._connection.can_read(timeout=max(seconds - EXACT, 0)):
                self._sleep(min(seconds, EXACT))
                return set()
            return self._read_all()
        except RedisError:
            self._connection.disconnect()
            self._sleep(min(seconds, RECONNECT_PAUSE))
            return set()

    def _subscribe(self) -> None:
        self._connection.connect()
        self._connection.send_command("SUBSCRIBE", self._channel)
        self._connection.read_response()

    def _read_all(self) -> set[str]:
        queues: set[str] = set()
        while self._connection.can_read(timeout=0):
            _, _, message = self._connection.read_response(disable_decoding=True)
            queues.add(message.decode().split(" ")[0])
        return queues
