"""What keeps a child from fetching though nobody told it to stop: the switches for all workers, and closed gates.

The supervisor reads the words: it says in what state the child is, and leaves when the child was called to restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.control import Control, RestartWatch
from delayq.core.events import WorkerQueuePaused, WorkerQueueResumed
from delayq.jobs.gates import Gate
from delayq.worker.listeners import Listeners
from delayq.worker.slots import Hold, Slots, Word

log = logging.getLogger("delayq.worker")

ASK_S: Final = 0.25
_HOLDS: Final = {"": Hold.NO, "paused": Hold.PAUSED, "maintenance": Hold.MAINTENANCE}


class Switches:
    """Of one child. `started_ms` is asked for once: when the worker began to load its code, by the server's clock."""

    def __init__(
        self, slots: Slots, gates: Sequence[Gate], started_ms: Callable[[], int], *, force: bool = False
    ) -> None:
        self._slots = slots
        self._gates = gates
        self._started_ms = started_ms
        self._force = force
        self._watch: RestartWatch | None = None
        self._ask_at = 0.0
        self._closed: Gate | None = None
        self._held = Hold.NO
        self._paused: frozenset[str] = frozenset()
        self._told: tuple[str, tuple[str, ...], Listeners] | None = None

    def tell(self, name: str, queues: tuple[str, ...], listeners: Listeners) -> None:
        """Tell these which of the queues are paused and resumed, in the name of this child."""
        self._told = (name, queues, listeners) if listeners else None

    def heed(self, control: Control) -> bool:
        """Told what holds for all workers; whether to fetch."""
        if self._told is not None:
            self._tell_pauses(control, *self._told)
        if self._watch is None:
            self._watch = RestartWatch(control.restart_ms, control.now_ms, self._started_ms())
        if self._watch.concerns(control.restart_ms):
            self._slots.ints[Word.RESTART] = 1
            return False
        self._held = _HOLDS[control.held_by(force=self._force)]
        self._say()
        return self._held is Hold.NO

    def gates_are_open(self) -> bool:
        """Whether no gate says "not now". They are asked again after a quarter of a second."""
        if self._gates and (now := time.monotonic()) >= self._ask_at:
            self._ask_at = now + ASK_S
            before, self._closed = self._closed, next((gate for gate in self._gates if not _opens(gate)), None)
            if self._closed is not before:
                _tell(self._closed)
            self._say()
        return self._closed is None

    def _tell_pauses(self, control: Control, name: str, queues: tuple[str, ...], listeners: Listeners) -> None:
        before, self._paused = self._paused, frozenset(queues) if control.paused else control.paused_queues
        for queue in queues:
            if queue in self._paused and queue not in before:
                listeners.tell(WorkerQueuePaused(name, queue))
            elif queue in before and queue not in self._paused:
                listeners.tell(WorkerQueueResumed(name, queue))

    def _say(self) -> None:
        self._slots.ints[Word.HOLD] = Hold.GATE if self._held is Hold.NO and self._closed is not None else self._held


def _opens(gate: Gate) -> bool:
    """A gate that raises could not tell: it counts as closed, because work is only put off by that."""
    try:
        return gate() is not False
    except Exception:
        log.exception("the gate %s failed; it counts as closed", _name(gate))
        return False


def _tell(closed: Gate | None) -> None:
    if closed is None:
        log.info("all gates are open again")
    else:
        log.info("the gate %s is closed; nothing is fetched until it opens", _name(closed))


def _name(gate: Gate) -> str:
    return str(getattr(gate, "__qualname__", gate))
