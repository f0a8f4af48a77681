"""Renews the leases of all jobs that children have, and passes stop requests on to the children.

This module runs in the supervisor. It reads the jobs of a child from the slots of the child, in the memory that
supervisor and child share. A job whose lease is not renewed in time is delivered again, usually to another worker.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.backends.protocol import LeaseKeeper
from delayq.core.errors import LoginRefused
from delayq.core.outages import RefusedLogins
from delayq.worker.children import ChildProcess

RETRY_AFTER: Final = 2.0
"""Longest time until a failed renewal is tried again, in seconds."""


class LeaseRenewal:
    """Renews leases every third of a lease.

    `lease`: the shortest lease of the queues at the start, in seconds. The reply to each renewal has the current value.
    `give_up`: begins the shutdown of the worker; its arguments are the reason and the children. `give_up` is called
    after a minute of refused logins, because the password was probably changed, and only a new process reads it again.
    """

    def __init__(
        self,
        keeper: LeaseKeeper,
        *,
        lease: float,
        give_up: Callable[[str, Sequence[ChildProcess]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._give_up = give_up
        self._logins = RefusedLogins(clock=clock)
        self._every = lease / 3
        self._clock = clock
        self._renew_at = clock() + self._every

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Renew the leases of all children if it is time.

        If a notification about a cancel names a job of a child, renew the leases of this child at once. Only the reply
        to the renewal stops the job, because the notification may come from another database, or may mean an earlier
        job with this id.
        """
        wished = set(self._keeper.stop_requests())
        is_due = now >= self._renew_at
        if is_due:
            self._renew_at = now + min(RETRY_AFTER, self._every)  # unless all renewals below succeed
        chosen = [child for child in children if is_due or (wished and not wished.isdisjoint(_jobs_of(child)))]
        for child in chosen:
            self._every = self._renew(child, children) / 3
        if is_due:
            self._renew_at = now + self._every
        return bool(chosen)

    def _renew(self, child: ChildProcess, children: Sequence[ChildProcess]) -> float:
        """Renew the leases of all jobs of a child, and return the shortest lease of the queues, in seconds.

        If more jobs are pending for the child than its slots show, a reply may have been lost. The child is then
        ordered to read its pending jobs again.
        """
        held = [view.ref for view in child.slots.read()]
        try:
            renewed = self._keeper.renew(child.consumer, held)
        except LoginRefused:
            if self._logins.refused():
                self._give_up("its login was refused for a minute", children)
            raise
        self._logins.accepted()
        if renewed.more > 0:
            child.slots.ask_replay()
        for job in held:
            if (job.queue, job.id) in renewed.cancelled:
                child.slots.cancel(job.key)
        return renewed.lease_ms / 1000


def _jobs_of(child: ChildProcess) -> list[tuple[str, str]]:
    return [(view.ref.queue, view.ref.id) for view in child.slots.read()]
