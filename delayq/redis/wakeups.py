"""Hints that the head of a queue moved earlier, and a wait that ends to the tenth of a millisecond."""

from __future__ import annotations

import logging
import time

from redis.client import PubSub

from delayq.core.errors import BackendError
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from delayq.redis.translate import translated

# A socket's timeout is counted in whole milliseconds and rounded up, so the last stretch is slept instead.
FINE_S = 0.0015

log = logging.getLogger("delayq.wake")


class PubSubWakeUps:
    """Listens to `delayq:wake` on a connection of its own. A lost connection only makes waits plain sleeps."""

    def __init__(self, connector: Connector, prefix: str) -> None:
        self._connector = connector
        self._channel = Globals(prefix).wake
        self._listener: PubSub | None = None

    def wait(self, seconds: float) -> frozenset[str]:
        """Wait for a hint, at most `seconds`; the queues hinted at."""
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > FINE_S:
                queues = self._listen(left - FINE_S)
                if queues:
                    return queues
        except BackendError as error:
            log.debug("no wake-ups for now: %s", error)
            self.close()
        if (left := end - time.monotonic()) > 0:
            time.sleep(left)
        return frozenset()

    def close(self) -> None:
        """Stop listening; the next wait subscribes anew."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _listen(self, seconds: float) -> frozenset[str]:
        with translated(self._connector.endpoint.where, reads=True):
            if self._listener is None:
                listener = self._connector.subscriber()
                self._listener = listener
                listener.subscribe(self._channel)
            queues = set()
            message = self._listener.get_message(timeout=seconds)
            while message is not None:
                queues.add(message["data"].decode("utf-8", "replace").rpartition(" ")[0])
                message = self._listener.get_message(timeout=0)
            return frozenset(queues)
