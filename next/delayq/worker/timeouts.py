"""Kills children whose jobs do not end after a timeout or a cancel. This runs in the supervisor.

When the time limit of a job ends, or after a cancel, the watchdog of the child interrupts the handler once, unless the
handler runs in one of several threads. A job that still runs after a further `timeout_grace` (a setting, 2 s by
default) is overdue. The supervisor then takes these steps:

    child with one thread        KILL at once
    child with several threads   if jobs run that are not overdue, order the child to take no more jobs; KILL when only
                                 overdue jobs are left, at the latest 5 s after the order
    child stopped by SIGSTOP     KILL at once

The time limit of a job is its timeout, or the time until its deadline if that is shorter.
"""

import logging
from collections.abc import Sequence
from typing import Final

from delayq.backends.values import EntryKey
from delayq.core.shards import queue_of
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.forking import is_stopped
from delayq.worker.shared_memory import SlotView, Stop

logger: Final = logging.getLogger("delayq.worker")

NEIGHBOURS_WAIT: Final = 5.0
"""How long the other jobs of a process with an overdue job may run before KILL, in seconds."""


class Timeouts:
    """Checks the slots of each child on every turn.

    `is_single`: each child runs one job at a time. `grace`: how long a job may go on after its time limit or a cancel,
    in seconds.
    """

    def __init__(self, *, is_single: bool, grace: float) -> None:
        self._is_single = is_single
        self._grace = grace
        self._cancelled_at: dict[EntryKey, float] = {}

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Kill children with overdue jobs. `now` is a time of the supervisor's clock."""
        seen: set[EntryKey] = set()
        for child in children:
            running = child.slots.running()
            seen |= {view.ref.key for view in running if view.is_cancelled}
            late = {view: self._late_by(child, view) for view in running}
            overdue = [view for view, seconds in late.items() if seconds >= self._grace]
            if overdue:
                self._end(child, overdue, has_others=len(overdue) < len(running), now=now)
        self._cancelled_at = {key: at for key, at in self._cancelled_at.items() if key in seen}
        return True

    def _late_by(self, child: ChildProcess, view: SlotView) -> float:
        """Return how many seconds ago a job should have ended, by its limit or a cancel; negative = it may run on."""
        now = child.slots.now()
        late = now - view.limit if view.limit else -1.0
        if view.is_cancelled:
            late = max(late, now - self._cancelled_at.setdefault(view.ref.key, now))
        return late

    def _end(self, child: ChildProcess, overdue: Sequence[SlotView], *, has_others: bool, now: float) -> None:
        if child.process_id is None or child.ending is not None:
            return
        keys = {view.ref.key for view in overdue}
        if is_stopped(child.process_id):
            child.kill(Ending.FROZEN, keys)
        elif self._is_single or not has_others or (child.end_by is not None and now >= child.end_by):
            is_cancel = all(view.is_cancelled for view in overdue)
            child.kill(Ending.CANCEL if is_cancel else Ending.TIMEOUT, keys)
        elif child.end_by is None:
            ids = ", ".join(f"{view.ref.id} of {queue_of(view.ref.queue)}" for view in overdue)
            logger.warning(
                "job %s did not stop after its timeout or a cancel; if it goes on, its process is killed when the "
                "other jobs of the process have finished, at the latest in %g s",
                ids,
                NEIGHBOURS_WAIT,
            )
            child.end_by = now + NEIGHBOURS_WAIT
            child.order(Stop.DRAIN)
