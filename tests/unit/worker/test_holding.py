"""What a child holds: who may start what, and what its slots say of each step."""

from __future__ import annotations

import pytest

from delayq.core.outcome import DONE, Ack, Release
from delayq.drivers.base import Delivery
from delayq.worker.clock import Standstill
from delayq.worker.held import Held
from delayq.worker.holding import LOOKS_S, Holding
from delayq.worker.slots import (
    ASIDE,
    ASIDE_LAST,
    CANCEL,
    EMPTY,
    FINISHED,
    LOST,
    RUNNING,
    SETTLED,
    SPILL_BYTES,
    SPILLED,
    WAITING,
    Slots,
    Word,
)

LEASE_S = 30.0


class Bench:
    """A holding of four slots, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slots = Slots(("q",), 4)
        self.slots.floats[Word.LEASE] = LEASE_S
        self.holding = Holding(self.slots, lambda: 0, lambda: self.now)

    def add(self, *ids: str, recoveries: int = 0) -> int:
        items = [Delivery("q", job_id, f"{n}-{job_id}", b"", 0, recoveries) for n, job_id in enumerate(ids)]
        return self.holding.add(items, self.now)

    def phases(self) -> dict[str, int]:
        return {item.claim.id: item.phase for item in self.slots.read()[1]}

    def start(self) -> Held:
        held = self.holding.start()
        assert held is not None
        return held

    def order(self, job_id: str, order: int) -> None:
        (seen,) = [item for item in self.slots.read()[1] if item.claim.id == job_id]
        self.slots.give_order(seen, order)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_step_is_one_phase(bench: Bench) -> None:
    bench.add("a", "b")
    assert bench.phases() == {"a": WAITING, "b": WAITING}
    one, other = bench.start(), bench.start()
    assert bench.phases() == {"a": RUNNING, "b": RUNNING}
    bench.holding.finish(one, DONE)
    bench.holding.finish(other, Release(5, 1, 1, ValueError()))
    assert bench.phases() == {"a": FINISHED, "b": SPILLED}
    taken = bench.holding.take_finished()
    assert bench.phases() == {"a": FINISHED, "b": SPILLED}, "held until it is settled"
    bench.holding.settled(taken)
    assert (bench.phases(), bench.holding.held, bench.slots.ints[Word.DONE]) == ({}, 0, 2)
    assert set(bytes(bench.slots.phases)) == {EMPTY}


def test_more_than_there_is_room_for_is_left_alone(bench: Bench) -> None:
    assert bench.add("a", "b", "c", "d", "e") == 4
    assert bench.holding.room == 0


def test_an_id_that_is_none_of_ours_is_left_alone(bench: Bench) -> None:
    assert bench.add("x" * 256, "é" * 128, "a") == 1


def test_nothing_starts_on_an_old_lease(bench: Bench) -> None:
    bench.add("a", "b")
    bench.now += LEASE_S * 0.7
    assert bench.holding.start() is None
    assert bench.holding.stale
    assert bench.phases() == {}


def test_a_renewal_counts_for_what_it_covered(bench: Bench) -> None:
    bench.add("a")
    covered = bench.slots.read()[0]
    bench.add("b")
    bench.now += LEASE_S * 0.7
    bench.slots.confirm(covered, bench.now - 1)
    assert bench.start().delivery.id == "a"
    assert bench.holding.start() is None, "b was read later than the renewal looked, and too long ago"
    assert bench.holding.stale


def test_a_timeout_of_the_one_before_does_not_count(bench: Bench) -> None:
    bench.add("a")
    held = bench.start()
    bench.holding.limit(held, 60.0)
    assert bench.slots.soft_at[held.slot] == bench.now + 60.0
    bench.holding.finish(held, Ack())
    bench.holding.settled(bench.holding.take_finished())
    bench.add("b")
    again = bench.start()
    assert (again.slot, bench.slots.soft_at[again.slot]) == (held.slot, 0.0)


def test_a_suspect_starts_only_as_one_that_is_alone(bench: Bench) -> None:
    bench.add("s", recoveries=2)
    assert bench.holding.start() is None
    suspect = bench.holding.suspect
    assert suspect is not None
    assert bench.phases() == {"s": WAITING}
    assert bench.holding.take_waiting() == [], "the watchdog does not hand it back"
    started = bench.holding.start(alone=suspect)
    assert started is suspect


def test_after_its_first_vanish_a_job_is_no_suspect(bench: Bench) -> None:
    bench.add("s", recoveries=1)
    assert bench.start().delivery.id == "s"


def test_a_job_that_the_next_vanish_fails_is_a_suspect() -> None:
    slots = Slots(("q",), 4)
    slots.floats[Word.LEASE] = LEASE_S
    holding = Holding(slots, lambda: 0, lambda: 1_000.0, max_recoveries=1)
    holding.add([Delivery("q", "s", "1-1", b"", 0, 1)], 1_000.0)
    assert holding.start() is None
    holding.set_aside()
    assert bytes(slots.phases).find(ASIDE_LAST) >= 0


def test_what_is_put_aside_and_lost_is_forgotten_without_a_word(bench: Bench) -> None:
    bench.add("s", recoveries=2)
    assert bench.holding.start() is None
    bench.holding.set_aside()
    assert bench.phases() == {"s": ASIDE}
    bench.order("s", LOST)
    assert bench.phases() == {}, "already before this process has read the order"
    assert bench.holding.aside == 1
    bench.holding.obey()
    assert (bench.holding.aside, bench.holding.held, bench.holding.stale) == (0, 0, False)
    assert bench.slots.ints[Word.DONE] == 0
    assert ("q", "0-s") in bench.holding.knows()


def test_what_is_lost_is_forgotten_unless_it_runs(bench: Bench) -> None:
    bench.add("a", "b", "c")
    running = bench.start()
    for job_id in ("a", "b"):
        bench.order(job_id, LOST)
    assert bench.start().delivery.id == "c"
    assert bench.holding.stale, "its lease was over: that is said, and asked about"
    assert bench.phases() == {"a": RUNNING, "c": RUNNING}
    assert running.delivery.id == "a"


def test_what_is_finished_and_lost_is_settled_all_the_same_and_so_found_out(bench: Bench) -> None:
    bench.add("lost", "settled", "next")
    for held in (bench.start(), bench.start()):
        bench.holding.finish(held, Ack())
    bench.order("lost", LOST)
    bench.order("settled", SETTLED)
    bench.start()
    assert [held.delivery.id for held in bench.holding.take_finished()] == ["lost"]


def test_what_waits_and_is_cancelled_is_done_without_being_started(bench: Bench) -> None:
    bench.add("a", "b")
    bench.order("a", CANCEL)
    assert bench.start().delivery.id == "b"
    assert [(held.delivery.id, held.outcome) for held in bench.holding.take_finished()] == [("a", Ack(called_off=True))]


def test_whoever_is_to_be_interrupted_is_named_once(bench: Bench) -> None:
    bench.add("a", "b")
    late, asked = bench.start(), bench.start()
    for held in (late, asked):
        held.interrupter = lambda held, error: None
    bench.holding.limit(late, 5.0)
    bench.order("b", CANCEL)
    assert bench.holding.to_interrupt() == [(asked, CANCEL)]
    bench.now += 5.0
    assert bench.holding.to_interrupt() == [(late, 0)]
    assert bench.holding.to_interrupt() == []


def test_a_handler_that_looks_for_itself_is_not_torn_out(bench: Bench) -> None:
    bench.add("a")
    looks = bench.start()
    looks.interrupter = lambda held, error: None
    assert not bench.holding.stop_asked(looks)
    bench.order("a", CANCEL)
    assert bench.holding.to_interrupt() == []
    assert bench.holding.stop_asked(looks)
    bench.now += LOOKS_S + 0.1
    assert bench.holding.to_interrupt() == [(looks, CANCEL)], "it has not looked for a while"


def test_what_could_not_be_settled_is_finished_again_and_marked(bench: Bench) -> None:
    bench.add("a", "b")
    for held in (bench.start(), bench.start()):
        bench.holding.finish(held, Ack())
    first = bench.holding.take_finished()
    bench.holding.unsettled(first)
    again = bench.holding.take_finished()
    assert [(held.delivery.id, held.resent) for held in again] == [("a", True), ("b", True)]
    bench.holding.settled(again)
    assert (bench.holding.held, bench.phases()) == (0, {})


def test_one_entry_id_in_two_queues_is_two_deliveries() -> None:
    slots = Slots(("q", "r"), 4)
    slots.floats[Word.LEASE] = LEASE_S
    holding = Holding(slots, lambda: 0, lambda: 0.0)
    holding.add([Delivery(queue, "a", "1-1", b"", 0, 0) for queue in ("q", "r")], 0.0)
    assert holding.knows() == {("q", "1-1"), ("r", "1-1")}
    first, second = holding.start(), holding.start()
    assert first is not None
    assert second is not None
    holding.finish(second, Ack())
    holding.settled(holding.take_finished())
    assert holding.knows() == {("q", "1-1")}


def test_what_is_on_its_way_back_cannot_be_started(bench: Bench) -> None:
    bench.add("a", "b")
    bench.holding.take_waiting()
    assert bench.holding.start() is None
    assert bench.phases() == {"a": WAITING, "b": WAITING}, "still to be renewed"
    assert bench.holding.knows() == {("q", "0-a"), ("q", "1-b")}
    bench.add("c")
    again = bench.holding.take_waiting()
    assert [held.delivery.id for held in again] == ["a", "b", "c"], "what did not get back is tried again"
    bench.holding.returned(again)
    bench.holding.returned(again)
    assert (bench.holding.knows(), bench.holding.held, bench.slots.ints[Word.DONE]) == (set(), 0, 0)


def test_an_outcome_without_room_looks_as_if_it_ran(bench: Bench) -> None:
    bench.add("a")
    held = bench.start()
    bench.holding.limit(held, 5.0)
    assert not bench.holding.finish(held, Ack(1, b"x" * SPILL_BYTES))
    assert bench.phases() == {"a": RUNNING}
    assert bench.slots.soft_at[held.slot] == 0.0, "nobody shall end the process for it"
    assert bench.holding.take_finished() == [held]


def test_how_long_others_have_waited(bench: Bench) -> None:
    bench.add("a", "b")
    held = bench.start()
    bench.now += 2.0
    assert (bench.holding.kept_waiting_for(), bench.holding.unsettled_for()) == (2.0, 0.0)
    bench.holding.finish(held, Ack())
    bench.now += 1.0
    assert (bench.holding.kept_waiting_for(), bench.holding.unsettled_for()) == (0.0, 1.0)


def test_a_standstill_moves_a_timeout_and_no_deadline(bench: Bench) -> None:
    bench.add("timed", "dated")
    timed, dated = bench.start(), bench.start()
    for held in (timed, dated):
        held.interrupter = lambda held, error: None
        bench.holding.limit(held, 60.0)
    dated.deadline_at = bench.now + 60.0
    bench.slots.floats[Word.STILL] = 100.0
    bench.now += 159.0
    assert bench.holding.to_interrupt() == [(dated, 0)]
    bench.now += 1.0
    assert bench.holding.to_interrupt(late=False) == []
    assert bench.holding.to_interrupt() == [(timed, 0)]


def test_a_job_that_starts_after_a_standstill_has_its_whole_time(bench: Bench) -> None:
    bench.slots.floats[Word.STILL] = 100.0
    bench.add("a")
    held = bench.start()
    held.interrupter = lambda held, error: None
    bench.holding.limit(held, 60.0)
    bench.now += 59.0
    assert bench.holding.to_interrupt() == []
    bench.now += 1.0
    assert bench.holding.to_interrupt() == [(held, 0)]


def test_a_step_that_took_longer_than_it_can_is_a_standstill() -> None:
    now = 10.0
    standstill = Standstill(lambda: now)
    now += 3.4
    assert standstill.step(3.0) == 0.0
    now += 3.6
    assert standstill.step(3.0) == pytest.approx(3.6)
    assert standstill.step(0.0) == 0.0
