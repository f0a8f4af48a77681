"""The mover, the janitor and the relay, with a keeper in memory and a clock that is set by hand."""

import pytest

from delayq.backends.protocol import Promoted, Reclaimed, Repaired
from delayq.core.errors import BackendUnavailable, CallRefused
from delayq.loops.janitor import Janitor
from delayq.loops.mover import Mover
from tests.support.fakes import FakeClock


class FakeQueues:
    """A QueueKeeper that answers each promotion of a queue with the next of its waits."""

    def __init__(self, **waits_us: list[int]) -> None:
        self._waits_us = waits_us
        self.promoted: list[str] = []
        self.reclaimed: list[str] = []
        self.damaged: dict[str, Exception] = {}

    def queues(self) -> list[str]:
        return sorted(self._waits_us)

    def promote(self, queue: str) -> Promoted:
        self.promoted.append(queue)
        if queue in self.damaged:
            raise self.damaged[queue]
        return Promoted(0, 0, self._waits_us[queue].pop(0))

    def reclaim(self, queue: str) -> Reclaimed:
        self.reclaimed.append(queue)
        if queue in self.damaged:
            raise self.damaged[queue]
        return Reclaimed(1, 0, 0)

    def repair(self, queue: str) -> Repaired:
        return Repaired()

    def follow_up(self, queue: str) -> int:
        return 0


def test_the_mover_sleeps_until_the_next_job_is_due() -> None:
    keeper = FakeQueues(a=[300_000], b=[-1])
    assert Mover(keeper, clock=FakeClock()).step(set()) == pytest.approx(0.3)


def test_a_full_batch_is_followed_by_another_at_once() -> None:
    keeper = FakeQueues(a=[0, 0, 5_000_000])
    assert Mover(keeper, clock=FakeClock()).step(set()) == 1.0
    assert keeper.promoted == ["a", "a", "a"]


def test_a_hint_makes_the_mover_look_at_one_queue() -> None:
    keeper = FakeQueues(a=[-1, 1_000], b=[-1])
    mover = Mover(keeper, clock=FakeClock())
    mover.step(set())
    mover.step({"a"})
    assert keeper.promoted == ["a", "b", "a"]


def test_one_damaged_queue_is_left_alone_for_a_second_and_stops_no_other() -> None:
    clock, keeper = FakeClock(), FakeQueues(bad=[], good=[1_000] * 51)
    keeper.damaged["bad"] = CallRefused("WRONGTYPE")
    mover = Mover(keeper, clock=clock)
    for _ in range(50):
        assert mover.step({"bad", "good"}) == pytest.approx(0.001)
    assert (keeper.promoted.count("bad"), keeper.promoted.count("good")) == (1, 50)
    clock.now += 1.1
    keeper.damaged.clear()
    keeper._waits_us["bad"] = [-1]
    mover.step(set())
    assert keeper.promoted.count("bad") == 2


def test_a_server_that_is_away_is_told_to_the_loop() -> None:
    keeper = FakeQueues(a=[], b=[])
    keeper.damaged["a"] = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        Mover(keeper, clock=FakeClock()).step(set())


def test_the_janitor_goes_on_after_a_damaged_queue() -> None:
    keeper = FakeQueues(bad=[], good=[])
    keeper.damaged["bad"] = CallRefused("WRONGTYPE")
    janitor = Janitor(keeper, reclaim_every=10, repair_every=60, clock=FakeClock())
    assert janitor.step(set()) == 10
    assert (keeper.reclaimed, janitor.reclaimed) == (["bad", "good"], 1)
