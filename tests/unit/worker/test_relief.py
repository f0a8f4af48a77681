"""A supervisor does for a child that stands still what it cannot do; and the child may wake up at any moment.

What it has finished is never run again for it, and what was handed back is not started here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delayq.core.control import WorkerOrder
from delayq.core.errors import BackendUnavailable
from delayq.core.outcome import DONE, Outcome
from delayq.drivers.base import Claim, Delivery, Renewal
from delayq.worker.clock import boot_clock
from delayq.worker.holding import Holding
from delayq.worker.renewing import Renewing
from delayq.worker.slots import LOST, SETTLED, Slots, Word

LEASE_S = 0.001
"""So that any child that has not looked around just now stands still."""


class Steward:
    """Notes what the child has been told by the time of each call."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.away = False
        self.ours = True
        self.told: list[tuple[str, str, int]] = []

    def lease_s(self) -> float:
        return LEASE_S

    def now_ms(self) -> int:
        return 0

    def renew(self, consumer: str, claims: Sequence[Claim]) -> Renewal:
        return Renewal(frozenset(), frozenset(), False)

    def settle(self, ended: Sequence[tuple[Claim, Outcome]]) -> list[bool]:
        self.told += [("settle", claim.id, self.ordered(claim)) for claim, _ in ended]
        if self.away:
            raise BackendUnavailable
        return [self.ours for _ in ended]

    def hand_back(self, claims: Sequence[Claim]) -> None:
        self.told += [("hand back", claim.id, self.ordered(claim)) for claim in claims]

    def announce(self, consumer: str, about: Any, ttl_s: float) -> None: ...

    def listen(self) -> None: ...

    def heard(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def changes(self) -> int:
        return 0

    def order(self, worker: str) -> WorkerOrder:
        return WorkerOrder.RESUME

    def ordered(self, claim: Claim) -> int:
        (seen,) = [item for item in self.slots.read()[1] if item.claim == claim]
        return self.slots.orders_for(seen.slot, seen.generation)


class Bench:
    """A child that has finished one job, runs one, and has not started a third."""

    def __init__(self) -> None:
        self.slots = Slots(("q",), 4)
        self.slots.floats[Word.LEASE] = 60.0
        self.holding = Holding(self.slots, lambda: 0)
        jobs = [Delivery("q", job_id, f"{n}-1", b"", 0, 0) for n, job_id in enumerate(("done", "runs", "waits"))]
        self.holding.add(jobs, boot_clock())
        done, _ = self.holding.start(), self.holding.start()
        assert done is not None
        self.holding.finish(done, DONE)
        self.steward = Steward(self.slots)
        plan = SimpleNamespace(options=SimpleNamespace(), lease_ms=None)
        self.renewing = Renewing(cast(Any, plan), cast(Any, self.steward))
        self.member = SimpleNamespace(slots=self.slots, name="dq:h:1:a", number=1, process=SimpleNamespace(pid=1))

    def relieve(self) -> None:
        self.renewing._relieve(cast(Any, self.member), boot_clock() + 1.0)

    def places(self) -> set[str]:
        return {entry for _, entry in self.holding.knows()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_hears_of_a_loss_before_and_of_a_settlement_after(bench: Bench) -> None:
    bench.relieve()
    assert bench.steward.told == [("settle", "done", 0), ("hand back", "waits", LOST)]
    assert bench.steward.ordered(Claim("q", "done", "0-1")) == SETTLED


def test_what_could_not_be_settled_for_it_stays_its_own(bench: Bench) -> None:
    bench.steward.away = True
    with pytest.raises(BackendUnavailable):
        bench.relieve()
    assert bench.steward.ordered(Claim("q", "done", "0-1")) == 0
    bench.holding.start()  # it wakes up, and obeys
    assert [held.delivery.id for held in bench.holding.take_finished()] == ["done"]


def test_what_was_taken_back_stays_its_own_too_so_that_it_says_so(bench: Bench) -> None:
    bench.steward.ours = False
    bench.relieve()
    assert bench.steward.ordered(Claim("q", "done", "0-1")) == 0
    bench.holding.start()
    assert [held.delivery.id for held in bench.holding.take_finished()] == ["done"]


def test_what_it_was_told_is_lost_is_no_news_when_the_backend_still_shows_it(bench: Bench) -> None:
    """It asks what the backend holds for it while the supervisor is about to hand that back."""
    bench.relieve()
    assert bench.holding.start() is None
    assert bench.holding.stale
    assert bench.holding.held == 1, "only what runs"
    assert "2-1" in bench.places()
    bench.slots.floats[Word.LEASE] = 0.0
    assert "2-1" not in bench.places(), "after a lease it may be its own again"
