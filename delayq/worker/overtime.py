"""Jobs that do not end when they should: the supervisor's part of a timeout, and of a cancellation.

The child itself raises in the handler first. What goes on all the same:

    a child that runs one job at a time    TERM, so that it is raised once more; then KILL
    a child with threads or an event loop  it takes no more work and may end what else runs; then KILL

The clock of a cancellation starts when the order is first seen here. Timeouts do not count the time in which the whole
worker stood still; a child that is stopped alone is ended, and its job recovered instead of charged.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterable

from delayq.worker.brood import Killed, Member
from delayq.worker.plan import Plan
from delayq.worker.slots import CANCEL, RUNNING, Seen, Stop

log = logging.getLogger("delayq.supervisor")

# Others in a process that is replaced have so long to end. When it is frozen none of them can, and what waits behind it
# has waited for the timeout and the kill before.
RECYCLE_S = 15.0


class Overtime:
    """Looks at the slots of each child, every turn."""

    def __init__(self, plan: Plan) -> None:
        self._kill_after_s = plan.options.kill_after_ms / 1000
        self._recycle_s = max(self._kill_after_s, min(RECYCLE_S, plan.options.grace_ms / 1000))
        self._alone = plan.alone
        self._cancels: dict[tuple[Member, int, int], float] = {}

    def step(self, members: Iterable[Member]) -> None:
        """Warn, recycle or kill."""
        for member in members:
            if member.end_by is not None and (time.monotonic() >= member.end_by or self._only_late(member)):
                member.kill(member.end_why)
            elif member.killed is None and self._is_late(member):
                for item in member.slots.read()[1]:
                    if item.phase == RUNNING:
                        self._judge(member, item)

    def forget(self, member: Member) -> None:
        """It is dead."""
        self._cancels = {key: at for key, at in self._cancels.items() if key[0] is not member}

    def _is_late(self, member: Member) -> bool:
        """A look at a few cells before the whole memory is read."""
        slots, now = member.slots, member.slots.working_clock()
        phases = bytes(slots.phases)
        at = phases.find(RUNNING)
        while at >= 0:
            if 0.0 < slots.soft_at[at] < now - self._kill_after_s / 2 or slots.orders[at] & CANCEL:
                return True
            at = phases.find(RUNNING, at + 1)
        return False

    def _only_late(self, member: Member) -> bool:
        """Whether what runs in a process that is to end is late, all of it: then nobody gains by waiting."""
        running = [item for item in member.slots.read()[1] if item.phase == RUNNING]
        return bool(running) and all(self._over_s(member, item)[0] >= self._kill_after_s for item in running)

    def _over_s(self, member: Member, item: Seen) -> tuple[float, Killed]:
        """How long ago it should have ended, and why; less than 0 when it is not late."""
        now = member.slots.working_clock()
        over_s, why = now - item.soft_at if item.soft_at else -1.0, Killed.OVERTIME
        if member.slots.orders_for(item.slot, item.generation) & CANCEL:
            asked_at = self._cancels.setdefault((member, item.slot, item.generation), now)
            over_s, why = max(over_s, now - asked_at), Killed.CANCEL
        return over_s, why

    def _judge(self, member: Member, item: Seen) -> None:
        over_s, why = self._over_s(member, item)
        if over_s < self._kill_after_s / 2:
            return
        if why is Killed.OVERTIME and member.process.is_stopped():
            if over_s >= self._kill_after_s:
                member.kill(Killed.FROZEN)
        elif self._alone or member.cell_of is not None:
            if over_s >= self._kill_after_s:
                member.kill(why)
            elif member.warned.get(item.slot) != item.generation:
                member.warned[item.slot] = item.generation
                member.process.send(signal.SIGTERM)
        elif over_s >= self._kill_after_s and member.end_by is None:
            log.warning(
                "child %d (process %d): job %s did not end %s; the process is replaced",
                member.number,
                member.process.pid,
                item.claim.id,
                "when it was cancelled" if why is Killed.CANCEL else "in time",
            )
            member.end_why = why
            member.tell(Stop.DRAIN)
            member.end_by = time.monotonic() + self._recycle_s
