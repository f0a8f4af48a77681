"""Writes a description of each child to the list of live workers, for `delayq workers` and similar tools.

The description of a child expires unless it is written again, so dead workers disappear from the list. A description
has the start times of the running jobs and not their runtimes, so that a reader can compute the runtimes at any time.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.backends.protocol import WorkerRegistry
from delayq.backends.values import EntryKey
from delayq.core.shards import queue_of
from delayq.worker.children import ChildProcess
from delayq.worker.shared_memory import SlotState, SlotView, Stop

EVERY: Final = 10.0
"""Longest time between two descriptions of a child, in seconds."""

CHECK_EVERY: Final = 1.0
"""Seconds between two checks whether the set of running jobs has changed. If so, the descriptions are written at once.

So a job that has ended stays in the description of its child for up to one second, and a worker with many short jobs
sends one request a second.
"""

MAX_RUNNING: Final = 10
"""Maximum number of jobs in the member `running` of a description. The member `runs` counts all running jobs."""


class Heartbeat:
    """Keeps the descriptions of the children of one worker in the list of live workers.

    `crashed`: returns the children whose process has ended and whose replacement has not started. They stay on the
    list, because the worker is still alive.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        queues: Sequence[str],
        *,
        now_ms: Callable[[], int],
        host: str = "",
        crashed: Callable[[], Sequence[ChildProcess]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._queues = list(queues)
        self._now_ms = now_ms
        self._host = host or socket.gethostname()
        self._crashed = crashed
        self._clock = clock
        self._started_ms: dict[str, int] = {}
        self._announce_at = clock()
        self._check_at = self._announce_at
        self._orders: dict[str, str] = {}
        self._running: dict[str, list[EntryKey]] = {}

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Write the descriptions every 10 s, and earlier after a change.

        If a child starts, ends, is paused, resumes or shuts down, write the descriptions at once. If the set of running
        jobs has changed, write them at the next check.
        """
        children = [*children, *self._crashed()]
        orders = {child.consumer: _order(child) for child in children}
        is_due = now >= self._announce_at or orders != self._orders
        if not is_due and now < self._check_at:
            return False
        self._check_at = now + CHECK_EVERY
        held = {child.consumer: child.slots.read() if child.process_id else [] for child in children}
        running = {
            consumer: [view.ref.key for view in views if view.state is SlotState.RUNNING]
            for consumer, views in held.items()
        }
        if not is_due and running == self._running:
            return False
        self._announce_at = now + EVERY
        if orders.keys() != self._orders.keys():
            self._registry.leave(sorted(self._orders.keys() - orders.keys()), self._now_ms())
        self._orders = orders
        self._running = running
        if children:
            descriptions = {child.consumer: self._about(child, held[child.consumer]) for child in children}
            self._registry.announce(descriptions, self._now_ms())
        return True

    def _about(self, child: ChildProcess, held: Sequence[SlotView]) -> dict[str, Any]:
        runs = sum(view.state is SlotState.RUNNING for view in held)
        return {
            "queues": self._queues,
            "host": self._host,
            "pid": child.process_id,
            "supervisor": os.getpid(),
            "started_ms": self._started_ms.setdefault(child.consumer, self._epoch_ms(child.started_at)),
            "state": _order(child) or ("working" if runs else "idle"),
            "done": child.slots.finished(),
            "held": len(held),
            "running": [
                {
                    "id": view.ref.id,
                    "name": view.name,
                    "queue": queue_of(view.ref.queue),
                    "started_ms": self._epoch_ms(view.since),
                }
                for view in _longest_running(held)
            ],
            "runs": runs,
        }

    def _epoch_ms(self, time: float) -> int:
        """Convert a time of the monotonic clock to epoch ms, by the clock of the backend."""
        return self._now_ms() - int((self._clock() - time) * 1000)


def _order(child: ChildProcess) -> str:
    """Return the state of a child after a crash or an order, or '' if the child may start jobs."""
    if child.process_id is None:
        return "crashed"
    if child.slots.stop_order() is not Stop.NO:
        return "leaving"
    return "paused" if child.slots.is_paused() else ""


def _longest_running(held: Sequence[SlotView]) -> list[SlotView]:
    """Return up to ten running jobs, the longest-running first."""
    running = (view for view in held if view.state is SlotState.RUNNING)
    return sorted(running, key=lambda view: view.since)[:MAX_RUNNING]
