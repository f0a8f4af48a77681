"""A child that settles ahead: what it holds until it has heard, and who hears."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from delayq.core.errors import OutcomeUnknown
from delayq.core.outcome import DONE
from delayq.drivers.base import Delivery, Fetched, Settlement
from delayq.worker.holding import Holding
from delayq.worker.listeners import Listeners
from delayq.worker.slots import LOST, SETTLED, Slots, Word
from delayq.worker.supply import Supply

QUEUE = "orders"


class Ahead:
    """A backend that settles what it is given with a read once its answer is asked for. `lost` answers never come."""

    def __init__(self) -> None:
        self.limits = None
        self.asked = self.lost = 0
        self.ours = True
        self.resent: list[bool] = []
        self._number = 0

    def now_ms(self) -> int:
        return 0

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        """One delivery, and the answers later."""
        self._number += 1
        delivery = Delivery(QUEUE, f"j{self._number}", f"{self._number}-0", b"", 0, 0)
        return Fetched((), [delivery], later=lambda: self._answer(settlements))

    def settle(self, settlements: Sequence[Settlement]) -> Fetched:
        """At once."""
        self.resent += [one.resent for one in settlements]
        return Fetched([self.ours] * len(settlements))

    def _answer(self, settlements: Sequence[Settlement]) -> Fetched:
        self.asked += 1
        if self.lost:
            self.lost -= 1
            return Fetched([None] * len(settlements), errors=[OutcomeUnknown("The answer was lost.")])
        return Fetched([True] * len(settlements))


class Child:
    """One that has run a job, and reads the next."""

    def __init__(self) -> None:
        self.backend = Ahead()
        slots = Slots((QUEUE,), 8)
        slots.floats[Word.LEASE] = 30.0
        self.slots, self.holding = slots, Holding(slots, lambda: 0)
        self.supply = Supply(slots, self.holding, cast(Any, self.backend), Listeners())
        self.supply.read(1, 0.0)
        self.supply.settle()  # nothing was given yet
        self.backend.asked = 0
        self.run()
        self.supply.read(1, 0.0)

    def run(self) -> None:
        """Run what waits."""
        held = self.holding.start()
        assert held is not None
        self.holding.finish(held, DONE)


def test_the_next_read_hears_first() -> None:
    child = Child()
    assert (child.backend.asked, child.holding.held) == (0, 2), "the one that ended, and the next"
    child.run()
    child.supply.read(1, 0.0)
    assert (child.backend.asked, child.holding.held) == (1, 2)
    assert child.slots.ints[Word.DONE] == 1


def test_the_watchdog_hears_while_a_handler_runs() -> None:
    child = Child()
    assert child.supply.unsettled_for() > 0.0
    other = threading.Thread(target=child.supply.settle)
    other.start()
    other.join()
    assert (child.backend.asked, child.holding.held) == (1, 1)
    assert child.supply.unsettled_for() == 0.0
    child.supply.settle()
    assert child.backend.asked == 1


def test_a_lost_answer_is_asked_for_by_settling_again() -> None:
    child = Child()
    child.backend.lost = 1
    with pytest.raises(OutcomeUnknown):
        child.supply.settle()
    assert child.holding.held == 2
    child.supply.settle()
    assert (child.backend.resent, child.holding.held) == ([True], 1)


def test_a_child_that_leaves_has_heard() -> None:
    child = Child()
    child.supply.settle_and_leave()
    assert (child.backend.asked, child.slots.ints[Word.DONE]) == (1, 1)


@pytest.mark.parametrize(("order", "fenced"), [(SETTLED, 0), (LOST, 1), (0, 1)])
def test_what_its_supervisor_settled_is_not_called_fenced(order: int, fenced: int) -> None:
    """It did so while this process stood still; the outcome counts, and only this process comes late with it."""
    child = Child()
    child.supply.settle()
    child.run()
    (seen,) = child.slots.read()[1]
    child.slots.give_order(seen, order)
    child.backend.ours = False
    child.supply.settle()
    assert (child.slots.ints[Word.FENCED], child.holding.held) == (fenced, 0)
