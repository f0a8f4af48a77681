"""A member of a batch where it starts: nothing of a batch starts any more once that was cancelled.

What waits is cancelled with its batch. This holds back what cannot be found then: what was on its way to a worker, the
later links of a chain, what is tried again. It stands before all middleware.
"""

from __future__ import annotations

import logging

from delayq.core.interrupts import JobCancelled
from delayq.jobs.asking import Asking

log = logging.getLogger("delayq.jobs")


class Member(Asking[bool]):
    """Asks after its batch first."""

    unasked = "nobody could say whether its batch was cancelled"

    def heed(self, answer: bool) -> None:
        """It ends as a job that was asked to stop."""
        if answer:
            log.info("job %s (%s) does not start: its batch was cancelled", self.question.who.id, self.name)
            raise JobCancelled
