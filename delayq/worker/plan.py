"""What a supervisor and its children have in common, made before the first fork."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from delayq.core.events import EVENTS, Listener
from delayq.core.keyring import NO_KEYS, Keyring
from delayq.drivers.base import Driver
from delayq.jobs.registry import Registry
from delayq.loops.vitals import Vitals
from delayq.worker.meter import Meter
from delayq.worker.options import WorkerOptions
from delayq.worker.prefetch import MOST

MOST_CELLS = 8


class DriverFactory(Protocol):
    """Makes a driver with connections of its own; called once in each process, after the fork."""

    def __call__(self, *, answer_ms: int | None = None) -> Driver:
        """`answer_ms`: wait no longer than that for a connection or an answer, and never ask again."""


class Stand(Protocol):
    """Where a process shows what it and its siblings count."""

    def open(self, meters: Sequence[Meter], vitals: Vitals) -> None:
        """Answer who asks, in a thread; returns at once. Called in the process that shows."""


def never() -> bool:
    """What a worker of its own serves is there for as long as it runs."""
    return False


@dataclass(frozen=True, slots=True)
class Plan:
    """Who works on what. `listeners` are called in the children, but for the end of the worker and of killed jobs.

    `told` and `gone` are asked now and then, by the supervisor. `told` ends the worker as TERM does, `gone` soon: what
    it served is not there any more, so that what runs cannot be settled. `began` is when the code began
    to be loaded that the children run (monotonic): who calls on workers to restart later, means this one. `keyring`
    opens what is encrypted. `stand`: where metrics are shown, if anywhere. `lease_ms`: the lease that the user set;
    None: the default. The supervisor warns when a queue keeps another lease.
    """

    driver_factory: DriverFactory
    registry: Registry
    options: WorkerOptions
    listeners: Sequence[Listener] = ()
    told: Callable[[], bool] = never
    gone: Callable[[], bool] = never
    began: float = field(default_factory=time.monotonic)
    keyring: Keyring = NO_KEYS
    stand: Stand | None = None
    lease_ms: int | None = None

    @property
    def audience(self) -> Sequence[Listener]:
        """The listeners, and those of the application, if it has any that a worker's events concern."""
        events = self.registry.events
        return (*self.listeners, events.tell) if events.hears(*EVENTS) else self.listeners

    @property
    def has_async(self) -> bool:
        """Whether an event loop is needed."""
        return any(self.registry.get(name).is_async for name in self.registry.names())

    @property
    def alone(self) -> bool:
        """Whether a child runs one job at a time; then killing it for one job interrupts no other."""
        return self.options.threads <= 1 and not self.has_async

    @property
    def cells(self) -> int:
        """How many jobs may run at once in a process of their own, beside the children: see `isolation`."""
        at_once = self.options.threads + (self.options.concurrency if self.has_async else 0)
        return 0 if self.alone else min(MOST_CELLS, self.options.processes * at_once)

    @property
    def slots(self) -> int:
        """Deliveries a child can hold at once: a batch that waits, one that is settled, and what runs."""
        return 2 * MOST + self.options.threads + self.options.concurrency
