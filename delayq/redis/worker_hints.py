"""Hints for workers: a running job is asked to stop, or switches may have changed. Without them a worker learns that
from its next renewal, or its next look."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redis.client import PubSub

from delayq.core.errors import DelayqError
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from delayq.redis.translate import translated

log = logging.getLogger("delayq.hints")

# Whoever asks has other things to do, and to subscribe may take as long as an answer may.
AGAIN_S = 5.0


class WorkerHints:
    """Listens to `delayq:cancel` and `delayq:switch` on a connection of its own, from the first `listen` on, and never
    waits for a hint. `serves` says which queues' switches matter.

    Hints may be lost: what they are about lies in Redis. `switched`: one said that switches may have changed, or there
    may have been one that nobody heard; whoever has looked puts it back.
    """

    def __init__(self, connector: Connector, prefix: str, serves: Callable[[str], bool]) -> None:
        self.switched = False
        self._connector = connector
        self._cancels, self._switches = Globals(prefix).cancels, Globals(prefix).switches
        self._serves = serves
        self._listener: PubSub | None = None
        self._listen_at = float("-inf")

    def listen(self) -> None:
        """Subscribe, unless that is done; one that was refused or lost, every five seconds."""
        if self._listener is not None and self._connector.hangs(self._listener):
            self.close()
        if self._listener is not None or time.monotonic() < self._listen_at:
            return
        self._listen_at = time.monotonic() + AGAIN_S
        try:
            with translated(self._connector.endpoint.where, reads=True):
                listener = self._connector.subscriber()
                listener.subscribe(self._cancels, self._switches)
                for _ in (self._cancels, self._switches):  # the server's word for each: hints before it went to nobody
                    listener.get_message(timeout=self._connector.waits.answer_ms / 1000)
        except DelayqError as error:
            log.debug("no hints for now: %s", error)
        else:
            self._listener, self.switched = listener, True

    def heard(self) -> frozenset[tuple[str, str]]:
        """(queue, id) of the jobs that were named since the last call."""
        found: set[tuple[str, str]] = set()
        try:
            with translated(self._connector.endpoint.where, reads=True):
                while self._listener is not None and (message := self._listener.get_message(timeout=0)):
                    said = message["data"].decode("utf-8", "replace")
                    if message["channel"] == self._switches.encode():
                        self.switched = self.switched or self._serves(said)
                    else:
                        queue, _, job_id = said.partition(" ")
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
