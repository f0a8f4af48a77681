"""Hints that the head of a queue moved earlier, and a wait that ends to the tenth of a millisecond."""

from __future__ import annotations

import logging
import time

from redis.client import PubSub

from delayq.core.endpoint import Topology
from delayq.core.errors import BackendUnavailable, DelayqError
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from delayq.redis.translate import translated

# A socket's timeout is counted in whole milliseconds and rounded up, so the last stretch is slept instead.
FINE_S = 0.0015

log = logging.getLogger("delayq.wake")


# How long to be content with plain sleeps after the connection was lost or refused.
AGAIN_S = 1.0
# A server that hangs keeps its connections open; one that has said nothing for so long is asked whether it is there.
QUIET_S = 10.0
# In a cluster another node can be listened to meanwhile.
QUIET_NODE_S = 1.0


class PubSubWakeUps:
    """Listens to `delayq:wake` on a connection of its own. A lost connection only makes waits plain sleeps."""

    def __init__(self, connector: Connector, prefix: str) -> None:
        self._connector = connector
        self._channel = Globals(prefix).wake
        self._listener: PubSub | None = None
        self._subscribe_at = float("-inf")
        self._heard_at = 0.0
        self._asked_at: float | None = None

    @property
    def listening(self) -> bool:
        """Whether it is subscribed, and the server has answered of late."""
        return self._listener is not None

    def wait(self, seconds: float) -> frozenset[str] | None:
        """Wait for a hint, at most `seconds`; the queues hinted at. None: it listens only since now."""
        end = time.monotonic() + seconds
        if self._listener is not None and self._connector.hangs(self._listener):
            self.close()
        try:
            if self._listener is None and time.monotonic() >= self._subscribe_at:
                self._subscribe(seconds)
                return None
            while self._listener is not None and (left := end - time.monotonic()) > FINE_S:
                queues = self._listen(self._listener, left - FINE_S)
                if queues:
                    return queues
                self._ask_if_quiet(self._listener)
        except DelayqError as error:
            log.debug("no wake-ups for now: %s", error)
            self.close()
            self._subscribe_at = time.monotonic() + AGAIN_S
        if (left := end - time.monotonic()) > 0:
            time.sleep(left)
        return frozenset()

    def close(self) -> None:
        """Stop listening; a later wait subscribes anew."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _subscribe(self, seconds: float) -> None:
        """Subscribe, and wait until the server has done it: hints before that went to nobody."""
        with translated(self._connector.endpoint.where, reads=True):
            self._listener = self._connector.subscriber()
            self._listener.subscribe(self._channel)
            self._listener.get_message(timeout=seconds)
        self._heard_at, self._asked_at = time.monotonic(), None

    def _listen(self, listener: PubSub, seconds: float) -> frozenset[str]:
        with translated(self._connector.endpoint.where, reads=True):
            queues = set()
            message = listener.get_message(timeout=seconds)
            while message is not None:
                self._heard_at, self._asked_at = time.monotonic(), None
                if message["type"] == "message":
                    queues.add(message["data"].decode("utf-8", "replace").rpartition(" ")[0])
                message = listener.get_message(timeout=0)
            return frozenset(queues)

    def _ask_if_quiet(self, listener: PubSub) -> None:
        """Called when nothing has come. Raises `BackendUnavailable` if the question was not answered either."""
        now, waits = time.monotonic(), self._connector.waits
        one_of_many = self._connector.endpoint.topology is Topology.CLUSTER
        quiet_s, answer_ms = (QUIET_NODE_S, waits.silent_ms) if one_of_many else (QUIET_S, waits.answer_ms)
        if self._asked_at is None:
            if now - self._heard_at > quiet_s:
                with translated(self._connector.endpoint.where, reads=True):
                    listener.ping()
                self._asked_at = now
        elif now - self._asked_at > answer_ms / 1000:
            self._connector.silent(listener)
            raise BackendUnavailable(f"Redis at {self._connector.endpoint.where} does not answer its listeners.")
