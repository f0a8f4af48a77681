"""Writes a description of each child to the list of live workers, for `delayq workers` and similar tools.

The description of a child expires unless it is written again, so dead workers disappear from the list.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.backends.protocol import WorkerRegistry
from delayq.worker.children import ChildProcess
from delayq.worker.shared_memory import SlotState, Stop

EVERY: Final = 10.0
"""Seconds between two descriptions of a child."""

MAX_RUNNING: Final = 10
"""Maximum number of running jobs in the member `running` of a description. `runs` is the number of all of them."""


class Heartbeat:
    """Keeps the descriptions of the children of one worker in the list of live workers."""

    def __init__(
        self,
        registry: WorkerRegistry,
        queues: Sequence[str],
        *,
        now_ms: Callable[[], int],
        host: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._queues = list(queues)
        self._now_ms = now_ms
        self._host = host or socket.gethostname()
        self._clock = clock
        self._announce_at = clock()
        self._states: dict[str, str] = {}

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Write the descriptions every 10 s, and at once if a child starts or ends or its state changes."""
        states = {child.consumer: _state(child) for child in children}
        if now < self._announce_at and states == self._states:
            return False
        self._announce_at = now + EVERY
        if states.keys() != self._states.keys():
            self._registry.leave(sorted(self._states.keys() - states.keys()), self._now_ms())
        self._states = states
        if children:
            self._registry.announce({child.consumer: self._about(child) for child in children}, self._now_ms())
        return True

    def _about(self, child: ChildProcess) -> dict[str, Any]:
        held = child.slots.read()
        running = [view for view in held if view.state is SlotState.RUNNING]
        lived_ms = int((self._clock() - child.started_at) * 1000)
        return {
            "queues": self._queues,
            "host": self._host,
            "pid": child.process_id,
            "supervisor": os.getpid(),
            "started_ms": self._now_ms() - lived_ms,
            "state": _state(child),
            "done": child.slots.finished(),
            "held": len(held),
            "running": [{"id": view.ref.id, "queue": view.ref.queue} for view in running[:MAX_RUNNING]],
            "runs": len(running),
        }


def _state(child: ChildProcess) -> str:
    if child.slots.stop_order() is not Stop.NO:
        return "leaving"
    return "paused" if child.slots.is_paused() else "working"
