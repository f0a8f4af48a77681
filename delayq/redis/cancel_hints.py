"""Hints that a running job is asked to stop, so that its worker need not wait for its next renewal to read that."""

from __future__ import annotations

import logging
import time

from redis.client import PubSub

from delayq.core.errors import DelayqError
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from delayq.redis.translate import translated

log = logging.getLogger("delayq.cancel")

# Whoever asks has other things to do, and to subscribe may take as long as an answer may.
AGAIN_S = 5.0


class CancelHints:
    """Listens to `delayq:cancel` on a connection of its own, from the first `listen` on, and never waits for a hint.

    Hints may be lost: the wish itself lies in Redis, and the next renewal reads it.
    """

    def __init__(self, connector: Connector, prefix: str) -> None:
        self._connector = connector
        self._channel = Globals(prefix).cancels
        self._listener: PubSub | None = None
        self._listen_at = float("-inf")

    def listen(self) -> None:
        """Subscribe, unless that is done; one that was refused or lost, every five seconds."""
        if self._listener is not None or time.monotonic() < self._listen_at:
            return
        self._listen_at = time.monotonic() + AGAIN_S
        try:
            with translated(self._connector.endpoint.where, reads=True):
                listener = self._connector.subscriber()
                listener.subscribe(self._channel)
        except DelayqError as error:
            log.debug("no hints for now: %s", error)
        else:
            self._listener = listener

    def heard(self) -> frozenset[tuple[str, str]]:
        """(queue, id) of the jobs that were named since the last call."""
        found: set[tuple[str, str]] = set()
        try:
            with translated(self._connector.endpoint.where, reads=True):
                while self._listener is not None and (message := self._listener.get_message(timeout=0)):
                    queue, _, job_id = message["data"].decode("utf-8", "replace").partition(" ")
                    found.add((queue, job_id))
        except DelayqError as error:
            log.debug("no hints for now: %s", error)
            self.close()
        return frozenset(found)

    def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
