"""The relay: what follows a job goes to the queue or the batch it belongs to.

The mover, which looks at every queue anyway, says where something waits to be carried; a relay that has nothing to do
asks Redis nothing. Any number may work side by side.
"""

from __future__ import annotations

import logging
import queue

from delayq.core.errors import AWAY
from delayq.drivers.base import Driver, Relayed
from delayq.loops.log_limit import LogLimit
from delayq.loops.troubles import Troubles

log = logging.getLogger("delayq.relay")

IDLE_S = 1.0
SAY_AGAIN_S = 60.0


class Relay:
    """Carries follow-ups of the queues it is told of."""

    name = "relay"

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._hints: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._told: dict[str, None] = {}
        self._troubles = Troubles(log)
        self._limit = LogLimit(SAY_AGAIN_S)

    def hint(self, queue: str) -> None:
        """Something waits to be carried from that queue. May be called from any thread."""
        self._hints.put(queue)

    def run_once(self) -> float:
        """Carry what there is in the queues hinted at; the seconds to sleep when there are no more."""
        self._gather()
        for name in list(self._told):
            try:
                self._tell(name, self._driver.relay(name))
            except Exception as error:
                if isinstance(error, AWAY) and not error.apart:
                    raise
                self._troubles.tell(error, f"queue {name}")
                if isinstance(error, AWAY):  # a node of a cluster: this one's turn comes again, after the others'
                    continue
            del self._told[name]
        return IDLE_S

    def sleep(self, seconds: float) -> None:
        """Wait for the time or the next hint."""
        try:
            self._told[self._hints.get(timeout=seconds)] = None
        except queue.Empty:
            return

    def close(self) -> None:
        """Nothing was opened."""

    def _tell(self, name: str, relayed: Relayed) -> None:
        for line in relayed.trouble:
            if number := self._limit.may_log(line):
                log.error("%s%s", line, f" (and {number - 1} times before)" if number > 1 else "")
        if relayed.waiting and (number := self._limit.may_log(name)):
            log.info("queue %s: %d follow-ups wait for the owner of a unique key", name, relayed.waiting)

    def _gather(self) -> None:
        while not self._hints.empty():
            self._told[self._hints.get()] = None
