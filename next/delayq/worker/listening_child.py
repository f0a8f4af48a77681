"""A child that emits WorkerLooping, QueuePaused and QueueResumed, for workers in which these events have listeners."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from delayq.core.events import QueuePaused, QueueResumed, WorkerLooping
from delayq.core.listeners import emit, listeners
from delayq.core.shards import queue_of
from delayq.worker.child import Child

HOLD: Final = 1.0
"""Seconds during which a child fetches nothing after a listener of WorkerLooping returned False or failed."""


def maker_of_child(name: str) -> Callable[..., Child]:
    """Return a function that creates a child: a ListeningChild if its events have listeners now, and otherwise a Child.

    `name`: the consumer name.
    """
    heard = (WorkerLooping, QueuePaused, QueueResumed)
    return partial(ListeningChild, name) if any(kind in listeners for kind in heard) else Child


def queues_of(shards: Sequence[str]) -> tuple[str, ...]:
    """Return the queues of these shards, in the same order."""
    return tuple(dict.fromkeys(queue_of(shard) for shard in shards))


class ListeningChild(Child):
    """A child that calls listeners. They run in its main thread, so a slow listener delays its loop."""

    def __init__(self, name: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._queues = queues_of(self._slots.queues)
        self._looping = WorkerLooping(name, self._queues)
        self._paused: set[str] = set()
        self._held_until = 0.0

    def step(self) -> None:
        """Emit the events, and then do the normal step of a child."""
        self._tell_pauses()
        if self._room() and not emit(self._looping):
            self._held_until = self._clock() + HOLD
        super().step()

    def _room(self) -> int:
        return 0 if self._clock() < self._held_until else super()._room()

    def _tell_pauses(self) -> None:
        """Emit an event for each queue whose pause began or ended since the last step."""
        switches = self._consumer.switches()
        for queue in self._queues:
            is_paused = switches.is_all_paused or queue in switches.paused
            if is_paused and queue not in self._paused:
                self._paused.add(queue)
                emit(QueuePaused(queue))
            elif not is_paused and queue in self._paused:
                self._paused.discard(queue)
                emit(QueueResumed(queue))
