"""A child's work, in its own process.

It keeps no leases; its supervisor does, by what the child writes to shared memory. Its death at any
moment is safe: the supervisor settles what was finished, hands back what had not started, and takes
back what ran. So leaving is simple too: end what runs, settle, go.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType

from delayq.core.order import order_of
from delayq.drivers.base import Consumer
from delayq.worker.attempt import Attempts
from delayq.worker.crew_inline import NUDGE, Inline
from delayq.worker.crew_loop import EventLoop
from delayq.worker.crew_threads import Threads
from delayq.worker.holding import Holding
from delayq.worker.lines import Farewell, Lines, Progress
from delayq.worker.listeners import Listeners
from delayq.worker.meter import Meter
from delayq.worker.patience import wait_for_backend
from delayq.worker.plan import Plan
from delayq.worker.policies import Policies
from delayq.worker.slots import Slots, Stop, Word
from delayq.worker.supply import Leave, Supply
from delayq.worker.switches import Switches
from delayq.worker.turns import Turns
from delayq.worker.watchdog import Watchdog

LOOK_AGAIN_S = 0.1
_CLOCK_MS = int(Word.CLOCK_MS)


class Child:
    """One child. `name` is its consumer's, `pipe` ends when the parent does, `meter` counts.

    A `cell` runs one job, which the supervisor passes to it, and nothing beside that. `accused`: see `Holding`.
    """

    def __init__(
        self,
        plan: Plan,
        slots: Slots,
        name: str,
        pipe: int,
        meter: Meter,
        *,
        cell: bool = False,
        accused: Collection[tuple[str, str]] = (),
    ) -> None:
        self._plan = plan
        self._slots = slots
        self._name = name
        self._pipe = pipe
        self._meter = meter
        self._cell = cell
        meter.tell_time(slots.floats)
        most = plan.options.max_recoveries
        self._holding = Holding(
            slots,
            self._now_ms,
            max_recoveries=most,
            accused=() if cell else accused,
            one_at_a_time=plan.alone,
            trusting=cell,
        )
        force, gates = plan.options.force, plan.registry.gates
        self._switches = Switches(slots, gates, self._started_ms, force=force)
        self._inline: Inline | None = None
        self._supply: Supply | None = None
        self._watchdog: Watchdog | None = None

    def run(self, jobs: int) -> None:
        """Work until there is a reason to leave; `jobs` may be started at most (0 = no limit)."""
        consumer = self._connect()
        if consumer is not None:
            turns = self._make(consumer)
            with suppress(Leave):
                turns.work_one() if self._cell else turns.work(jobs)
            with suppress(Leave):
                turns.drain(self._plan.options.kill_after_ms / 1000)
            turns.close()
        self._slots.ints[Word.ENDED] = 1

    def _connect(self) -> Consumer | None:
        driver, options, heed = self._plan.driver_factory(), self._plan.options, self._switches.heed
        queues, order = options.queues, order_of(options.queues, options.weights)

        def connect() -> Consumer:
            consumer = driver.consumer(self._name, queues, heed, order, self._news)
            if self._cell:
                consumer.fetch((), 0)  # takes nothing, and learns which shards there are: a replay asks those it knows
            return consumer

        return wait_for_backend(connect, self._shall_leave, self._sleep)

    def _news(self) -> int:
        return self._slots.ints[Word.SWITCHES]

    def _shall_leave(self) -> bool:
        return bool(self._slots.ints[Word.STOP] == Stop.DRAIN)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._shall_leave() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_AGAIN_S))

    def _make(self, consumer: Consumer) -> Turns:
        """The parts, threads included: they are made after the fork, in the process that needs them."""
        plan, slots, holding, options = self._plan, self._slots, self._holding, self._plan.options
        listeners = Listeners(plan.audience)
        self._switches.tell(self._name, options.queues, listeners)
        lines = Lines(holding.stop_asked, Progress(consumer.tell), Farewell(), consumer.limits)
        policies = Policies(options.fallback)
        attempts = Attempts(
            plan.registry, policies, self._now_ms, lines, listeners, keyring=plan.keyring, meter=self._meter
        )
        attempts.worker = self._name
        supply = self._supply = Supply(slots, holding, consumer, listeners)
        supply.afterwards = lines.afterwards
        supply.meter = self._meter
        turns = Turns(slots, holding, supply, attempts, options, cells=plan.cells > 0)
        if self._plan.registry.gates:
            turns.may_fetch = self._switches.gates_are_open
        watchdog = self._watchdog = Watchdog(slots, holding, supply, pipe=self._pipe, memory_mb=options.memory_mb)
        ring = _both(turns.bell.set, watchdog.ring)
        if options.threads > 1 and not self._cell:
            turns.sync = Threads(holding, attempts, options.threads, ring)
        else:
            turns.sync = turns.inline = self._inline = Inline(holding, attempts, supply.settle)
        if plan.has_async:
            turns.loop = EventLoop(holding, attempts, options.concurrency, ring)
        signal.signal(NUDGE, self._nudged)
        signal.signal(signal.SIGTERM, self._terminated)
        watchdog.farewell = lines.farewell.say
        watchdog.start()
        return turns

    def _nudged(self, number: int, frame: FrameType | None) -> None:
        """The watchdog's signal: end a wait for the backend, or the running handler. Late ones find nothing to do."""
        supply, stop = self._supply, self._slots.ints[Word.STOP]
        if supply is not None and (supply.disturbed or (supply.calling and stop == Stop.DRAIN)):
            supply.waiting = supply.calling = False
            raise Leave
        if self._inline is not None:
            self._inline.nudged()

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        if self._inline is not None and self._watchdog is not None:
            self._watchdog.interrupt_late()
            self._inline.terminated()

    def _now_ms(self) -> int:
        """The server's time, as the supervisor last saw it."""
        return int(time.monotonic() * 1000 + self._slots.floats[_CLOCK_MS])

    def _started_ms(self) -> int:
        return int(self._plan.began * 1000 + self._slots.floats[_CLOCK_MS])


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """One after the other."""

    def ring() -> None:
        one()
        other()

    return ring
