"""Tells listeners what a worker as a whole goes through: nothing to do, a pause, a signal that ends it.

Looked at in the supervisor's turns, so what is over within one of them (a tenth of a second) may go untold.
"""

from __future__ import annotations

from delayq.core.events import WorkerIdle, WorkerInterrupted, WorkerPausing, WorkerResuming
from delayq.worker.brood import Brood
from delayq.worker.listeners import Listeners
from delayq.worker.signals import Signals


class Moods:
    """Of the worker `name`, which serves `queues`."""

    def __init__(self, name: str, queues: tuple[str, ...], listeners: Listeners) -> None:
        self._name = name
        self._queues = queues
        self._listeners = listeners
        self._interrupted = False
        self._paused = False
        self._idle_after = -1

    def hear(self, signals: Signals, *, quiet: bool) -> None:
        """Tell of signals that came, and of an operator's order to be quiet."""
        paused = signals.paused or quiet
        if paused is not self._paused:
            self._paused = paused
            self._listeners.tell(WorkerPausing(self._name) if self._paused else WorkerResuming(self._name))
        if signals.stops and not self._interrupted:
            self._interrupted = True
            self._listeners.tell(WorkerInterrupted(self._name, signals.first_stop))

    def look(self, brood: Brood) -> None:
        """Tell when there is nothing to do, once until a job has come. A worker that rests is not idle."""
        if self._paused or self._interrupted or brood.idle_since is None or brood.held:
            return
        if (done := brood.done) != self._idle_after:
            self._idle_after = done
            self._listeners.tell(WorkerIdle(self._name, self._queues, done))
