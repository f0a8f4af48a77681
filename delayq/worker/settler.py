"""Settles what a worker has finished and hands back what it will not start; one way for the worker and its keeper.

Nothing is given up here: an outcome that could not be settled stays held and is tried again, for as long as the
process lives. One that was settled by an earlier try whose reply got lost comes back as fenced; that is said, but is
no reason to worry.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from delayq.core.errors import AWAY, DelayqError
from delayq.core.events import JobFenced
from delayq.drivers.base import Consumer, Fetched, Settlement
from delayq.loops.troubles import Troubles
from delayq.worker.held import Held
from delayq.worker.listeners import Listeners

log = logging.getLogger("delayq.worker")


class Settler:
    """Settles for `held` by `consumer`. Any thread may call it."""

    def __init__(self, consumer: Consumer, held: Held, listeners: Listeners) -> None:
        self._consumer = consumer
        self._held = held
        self._listeners = listeners
        self._troubles = Troubles(log)

    def fetch(self, count: int) -> Fetched:
        """Settle all that is finished and read up to `count` deliveries, in one round trip."""
        finished = self._held.take_finished()
        try:
            fetched = self._consumer.fetch(finished, count)
        except BaseException:
            self._held.unsettled(finished)
            raise
        self._note(finished, fetched.settled)
        return fetched

    def settle(self) -> None:
        """Settle all that is finished, without reading. Raises when the backend is away; other trouble is logged."""
        finished = self._held.take_finished()
        if not finished:
            return
        try:
            fetched = self._consumer.settle(finished)
        except BaseException:
            self._held.unsettled(finished)
            raise
        self._note(finished, fetched.settled)
        self.tell(fetched.errors)

    def hand_back(self) -> None:
        """Hand back all that waits. Raises when that did not work everywhere; it is tried again with the next call."""
        waiting = self._held.take_waiting()
        if waiting:
            self._consumer.hand_back(waiting)
            self._held.returned(waiting)

    def tell(self, errors: Sequence[DelayqError]) -> None:
        """Log the trouble of single queues. Raises the first that means that the backend is away."""
        for error in errors:
            if not isinstance(error, AWAY):
                self._troubles.tell(error)
        for error in errors:
            if isinstance(error, AWAY):
                raise error

    def _note(self, finished: Sequence[Settlement], answers: Sequence[bool | None]) -> None:
        if all(answers):  # True for each: nothing is left over, nothing was fenced
            self._held.settled(finished)
            return
        answered = list(zip(finished, answers, strict=True))
        self._held.settled([settlement for settlement, ours in answered if ours is not None])
        if kept := [settlement for settlement, ours in answered if ours is None]:
            self._held.unsettled(kept)
        self._tell_fenced([settlement for settlement, ours in answered if ours is False])

    def _tell_fenced(self, fenced: Sequence[Settlement]) -> None:
        if resent := sum(settlement.resent for settlement in fenced):
            log.info("%d jobs were settled by an earlier try whose answer was lost, or taken back", resent)
        for settlement in fenced:
            job = settlement.delivery
            if not settlement.resent:
                log.warning("job %s: it was taken back meanwhile; its outcome here does not count", job.id)
            self._listeners.tell(JobFenced(job.id, job.queue, settlement.resent))
