"""A job that ends in a thread or a loop while its child waits for work: settled at once, as others may wait for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from delayq.core.outcome import DONE
from delayq.drivers.base import Delivery, Fetched, Settlement
from delayq.worker import watchdog
from delayq.worker.clock import boot_clock
from delayq.worker.held import Held
from delayq.worker.holding import Holding
from delayq.worker.listeners import Listeners
from delayq.worker.slots import Slots, Word
from delayq.worker.supply import Supply
from delayq.worker.watchdog import Watchdog
from tests.support.waiting import wait_until

HOUR_S = 3600.0


class Bench:
    """A child that runs one job elsewhere, and a backend in which nothing waits. `meanwhile` it ends, if at all."""

    def __init__(self, *, meanwhile: bool) -> None:
        self.limits = None
        self.settled: list[str] = []
        self.waits = 0
        self._meanwhile = meanwhile
        self.slots = Slots(("q",), 4)
        self.slots.floats[Word.LEASE] = 60.0
        self.holding = Holding(self.slots, lambda: 0)
        self.supply = Supply(self.slots, self.holding, cast(Any, self), Listeners())
        self.holding.add([Delivery("q", "first", "1-0", b"", 0, 0)], boot_clock())
        self.runs = cast(Held, self.holding.start())

    def end(self) -> None:
        """Its thread says so."""
        self.holding.finish(self.runs, DONE)

    # -- the backend -------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return 0

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        if self._meanwhile and self.holding.running:
            self.end()
        return self.settle(settlements)

    def wait(self, seconds: float) -> Fetched:
        self.waits += 1
        return Fetched()

    def settle(self, settlements: Sequence[Settlement]) -> Fetched:
        self.settled += [one.delivery.id for one in settlements]
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit  # ends the watchdog, and nothing else
        return Fetched([True] * len(settlements))


def test_what_ended_during_the_look_is_settled_before_the_wait() -> None:
    bench = Bench(meanwhile=True)
    assert bench.supply.read(1, 1.0) == 0
    assert bench.waits == 0, "it would be settled after the wait only"
    assert bench.supply.read(1, 1.0) == 0
    assert (bench.settled, bench.waits) == (["first"], 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # how the watchdog ends
def test_what_ends_during_the_wait_is_settled_by_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_S", HOUR_S)
    monkeypatch.setattr(watchdog, "IDLE_LOOK_S", HOUR_S)
    bench = Bench(meanwhile=False)
    parent, _stays_open = os.pipe()  # when its other end closes, the watchdog ends this process
    dog = Watchdog(bench.slots, bench.holding, bench.supply, pipe=parent, memory_mb=0)
    dog.start()
    bench.supply.waiting = True
    bench.end()
    dog.ring()
    wait_until(lambda: bench.settled == ["first"], what="it is settled, an hour before the next look")
    wait_until(lambda: "delayq-watchdog" not in {one.name for one in threading.enumerate()}, what="the watchdog ended")


def test_nobody_is_woken_for_what_the_main_thread_settles() -> None:
    bench = Bench(meanwhile=False)
    parent, _stays_open = os.pipe()
    dog = Watchdog(bench.slots, bench.holding, bench.supply, pipe=parent, memory_mb=0)
    bench.end()
    dog.ring()
    assert (bench.settled, bench.holding.ended) == ([], 1)
