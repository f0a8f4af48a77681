"""Keeps the leases of children by what their slots show, and passes on which jobs are asked to stop."""

import time
from collections.abc import Callable, Sequence

from delayq.backends.protocol import LeaseKeeper
from delayq.worker.children import ChildProcess


class LeaseRenewal:
    """Renews every third of a lease. `lease` is the shortest of the queues; each renewal brings the present one."""

    def __init__(self, keeper: LeaseKeeper, *, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper = keeper
        self._every = lease / 3
        self._clock = clock
        self._renew_at = clock() + self._every

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Renew when it is time. A job that was cancelled meanwhile is asked to stop in either case."""
        for queue, job_id in self._keeper.stop_wishes():
            for child in children:
                _ask_to_stop(child, queue, job_id)
        if now < self._renew_at:
            return False
        self._renew_at = now + self._every
        for child in children:
            self._every = self._renew(child) / 3
        self._renew_at = now + self._every
        return bool(children)

    def _renew(self, child: ChildProcess) -> float:
        """Renew everything that a child holds, and return the lease in seconds.

        When the backend holds more for it, an answer was lost: the child is asked to read its pending jobs again.
        """
        held = [view.held for view in child.slots.read()]
        renewed = self._keeper.renew(child.consumer, held)
        if renewed.more > 0:
            child.slots.ask_replay()
        for job in held:
            if (job.queue, job.id) in renewed.cancelled:
                child.slots.cancel(job.key)
        return renewed.lease_ms / 1000


def _ask_to_stop(child: ChildProcess, queue: str, job_id: str) -> None:
    for view in child.slots.read():
        if view.held.id == job_id and view.held.queue == queue:
            child.slots.cancel(view.held.key)
