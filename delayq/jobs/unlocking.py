"""A handler whose job gives up its lock when it starts: behind all middleware, right before the handler is called."""

from __future__ import annotations

import logging

from delayq.core.limiting import Limits, Unlock, Unlocked
from delayq.core.signals import Snooze
from delayq.jobs.asking import AWAY, Asking
from delayq.jobs.handler import Handler
from delayq.jobs.middleware.surrounded import Surrounded

log = logging.getLogger("delayq.jobs")


class Unlocking(Asking[Unlocked]):
    """Frees the lock first."""

    unasked = "its unique key could not be freed"

    def heed(self, answer: Unlocked) -> None:
        """A delivery that is not its job's any more does not run."""
        if answer is Unlocked.FENCED:
            log.warning("job %s (%s) does not start here: it was taken back", self.question.who.id, self.name)
            raise Snooze(AWAY, reason="it was taken back before it started")


def unlocking(handler: Handler, unlock: Unlock, limits: Limits) -> Handler:
    """The handler for one attempt; what surrounds it stays outside."""
    if isinstance(handler, Surrounded):
        return handler.around(Unlocking(handler.inner, unlock, limits))
    return Unlocking(handler, unlock, limits)
