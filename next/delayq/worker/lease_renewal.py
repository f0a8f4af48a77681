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
        """Renew when it is time, and at once for a child whose job was asked to stop, as a hint says.

        Only the answer of the renewal stops a job: the hint may be that of another database, or of an earlier job with
        this id.
        """
        wished = set(self._keeper.stop_requests())
        is_due = now >= self._renew_at
        if is_due:
            self._renew_at = now + self._every
        chosen = [child for child in children if is_due or (wished and not wished.isdisjoint(_jobs_of(child)))]
        for child in chosen:
            self._every = self._renew(child) / 3
        if is_due:
            self._renew_at = now + self._every
        return bool(chosen)

    def _renew(self, child: ChildProcess) -> float:
        """Renew everything that a child holds, and return the lease in seconds.

        When the backend holds more for it, an answer was lost: the child is asked to read its pending jobs again.
        """
        held = [view.ref for view in child.slots.read()]
        renewed = self._keeper.renew(child.consumer, held)
        if renewed.more > 0:
            child.slots.ask_replay()
        for job in held:
            if (job.queue, job.id) in renewed.cancelled:
                child.slots.cancel(job.key)
        return renewed.lease_ms / 1000


def _jobs_of(child: ChildProcess) -> list[tuple[str, str]]:
    return [(view.ref.queue, view.ref.id) for view in child.slots.read()]
