"""Kills children whose jobs do not end after a timeout or a cancel. This runs in the supervisor.

First, the watchdog of the child interrupts the handler. If the job still runs some time later, the supervisor takes
these steps:

    child with one thread        after 1 s: TERM, so that the child raises the exception once more; after 2 s: KILL
    child with several threads   after 2 s: order the child to take no more jobs; KILL as soon as its other jobs have
                                 finished, or 5 s after the order
    child stopped by SIGSTOP     after 2 s: KILL
"""

import logging
import signal
from collections.abc import Sequence
from typing import Final

from delayq.backends.protocol import EntryKey
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.forking import is_stopped, send
from delayq.worker.shared_memory import SlotState, SlotView, Stop

logger: Final = logging.getLogger("delayq.worker")

WARN_AFTER: Final = 1.0
"""Seconds from the end of the time limit of a job to TERM."""

KILL_AFTER: Final = 2.0
"""Seconds from the end of the time limit of a job to KILL."""

NEIGHBOURS_WAIT: Final = 5.0
"""Seconds that the other jobs of the process get to finish before KILL."""


class Timeouts:
    """Checks the slots of each child on every turn. `is_single`: each child has one thread."""

    def __init__(self, *, is_single: bool) -> None:
        self._is_single = is_single
        self._cancelled_at: dict[EntryKey, float] = {}

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Send TERM or KILL to children with overdue jobs. `now` is a time of the supervisor's clock."""
        seen: set[EntryKey] = set()
        for child in children:
            running = [view for view in child.slots.read() if view.state is SlotState.RUNNING]
            seen |= {view.ref.key for view in running if view.is_cancelled}
            late = {view: self._late_by(child, view) for view in running}
            overdue = [view for view, seconds in late.items() if seconds >= KILL_AFTER]
            if overdue:
                self._end(child, overdue, has_others=len(overdue) < len(running), now=now)
            elif self._is_single:
                self._warn(child, [view for view, seconds in late.items() if seconds >= WARN_AFTER])
        self._cancelled_at = {key: at for key, at in self._cancelled_at.items() if key in seen}
        return True

    def _late_by(self, child: ChildProcess, view: SlotView) -> float:
        """Return for how many seconds a job has been overdue. A negative number means that it may still run."""
        now = child.slots.now()
        late = now - view.limit if view.limit else -1.0
        if view.is_cancelled:
            late = max(late, now - self._cancelled_at.setdefault(view.ref.key, now))
        return late

    def _warn(self, child: ChildProcess, views: Sequence[SlotView]) -> None:
        for view in views:
            if view.ref.key not in child.warned and child.process_id is not None:
                child.warned.add(view.ref.key)
                send(child.process_id, signal.SIGTERM)

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
            ids = ", ".join(f"{view.ref.id} of {view.ref.queue}" for view in overdue)
            logger.warning(
                "job %s did not stop after its timeout or cancel; its process is killed when its other jobs have "
                "finished, in %g s at the latest",
                ids,
                NEIGHBOURS_WAIT,
            )
            child.end_by = now + NEIGHBOURS_WAIT
            child.order(Stop.DRAIN)
