"""What a worker holds, place by place, and what may start."""

from __future__ import annotations

import logging

import pytest

from delayq.core.outcome import Ack, Release
from delayq.drivers.base import Settlement
from delayq.worker.held import Held
from tests.support.fakes import Clock, delivery

LEASE_S = 30.0
A, B, C = delivery("a"), delivery("b"), delivery("c")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(clock: Clock) -> Held:
    return Held(LEASE_S, clock)


def test_a_delivery_goes_from_place_to_place_and_is_held_in_each(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    assert held.all() == [A, B]
    assert held.start() == A
    assert (set(held.all()), held.waiting(), held.others()) == ({A, B}, True, True)
    held.finish(Ack())
    assert set(held.all()) == {A, B}
    taken = held.take_finished()
    assert taken == [Settlement(A, Ack())]
    assert set(held.all()) == {A, B}, "still held on its way to the backend"
    held.settled(taken)
    assert held.all() == [B]
    assert held.start() == B
    held.finish(Ack())
    held.settled(held.take_finished())
    assert held.empty()


def test_what_could_not_be_settled_is_finished_again_and_marked(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    for _ in range(2):
        held.start()
        held.finish(Ack())
    first = held.take_finished()
    held.unsettled(first)
    assert held.take_finished() == [Settlement(A, Ack(), resent=True), Settlement(B, Ack(), resent=True)]


def test_part_of_a_batch_may_be_settled(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    for _ in range(2):
        held.start()
        held.finish(Ack())
    one, two = held.take_finished()
    held.settled([one])
    held.unsettled([two])
    assert held.all() == [B]


def test_one_entry_id_in_two_queues_is_two_deliveries(held: Held, clock: Clock) -> None:
    """Entry ids are unique in their stream only."""
    here, there = delivery("x", "orders", "5-0"), delivery("y", "mails", "5-0")
    held.add([here, there], clock.now)
    for _ in range(2):
        held.start()
        held.finish(Ack())
    one, _two = held.take_finished()
    held.settled([one])
    assert held.all() == [there]


# -- who may start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed_s", "starts"), [(0.0, True), (19.9, True), (20.1, False), (500.0, False)])
def test_nothing_starts_after_two_thirds_of_a_lease(held: Held, clock: Clock, passed_s: float, starts: bool) -> None:
    held.add([A], clock.now)
    clock.now += passed_s
    assert (held.start() == A) is starts
    assert held.incomplete is not starts, "what was dropped must be asked for anew"


def test_a_frozen_worker_drops_all_that_waits_and_says_so(
    held: Held, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    held.add([A, B, C], clock.now)
    held.start()
    held.finish(Ack())
    clock.now += LEASE_S
    with caplog.at_level(logging.WARNING):
        assert held.start() is None
    assert held.all() == [A], "what was finished keeps its outcome; its settlement will tell whether it counts"
    assert "stood still" in caplog.text


def test_a_renewal_counts_from_when_it_was_sent(held: Held, clock: Clock) -> None:
    held.add([A], clock.now)
    reads, snapshot = held.snapshot()
    sent_at = clock.now + 15
    clock.now += 25  # the answer took ten seconds
    assert snapshot == [A]
    held.confirm(reads, sent_at)
    assert held.start() == A


def test_a_renewal_says_nothing_of_what_was_read_after_it(held: Held, clock: Clock) -> None:
    """The read may have been answered long before the renewal was sent, and its reply lain in a buffer."""
    reads, _ = held.snapshot()
    read_sent_at = clock.now
    clock.now += 25
    held.add([A], read_sent_at)
    held.confirm(reads, clock.now)
    assert held.start() is None
    assert held.incomplete


def test_an_older_confirmation_changes_nothing(held: Held, clock: Clock) -> None:
    held.add([A], clock.now)
    reads, _ = held.snapshot()
    held.confirm(reads, clock.now - 100)
    assert held.start() == A


# -- handing back ----------------------------------------------------------------------------------------------------


def test_what_is_on_its_way_back_is_held_and_never_started(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    held.start()
    assert held.take_waiting() == [B]
    assert held.start() is None
    assert set(held.all()) == {A, B}, "renewed until it is back"
    assert held.take_waiting() == [B], "a hand-back that failed is tried again"
    held.returned([B])
    assert held.take_waiting() == []
    assert held.all() == [A]


def test_what_did_not_start_after_all_waits_in_front(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    held.start()
    held.abandon()
    assert held.start() == A


def test_what_is_lost_is_dropped_unless_it_runs(held: Held, clock: Clock) -> None:
    held.add([A, B, C], clock.now)
    held.start()
    held.drop(frozenset({("orders", "a"), ("orders", "b"), ("mails", "c")}))
    assert set(held.all()) == {A, C}


def test_what_waits_and_is_asked_to_stop_is_done_without_a_start(held: Held, clock: Clock) -> None:
    held.add([A, B, C], clock.now)
    held.start()
    held.call_off(frozenset({("orders", "a"), ("orders", "c")}))
    held.finish(Release(10, 1, 1, None))
    assert held.start() == B
    assert held.take_finished() == [Settlement(C, Ack()), Settlement(A, Release(10, 1, 1, None))]


# -- replay ----------------------------------------------------------------------------------------------------------


def test_a_replay_brings_what_is_not_held(held: Held, clock: Clock) -> None:
    held.add([A], clock.now)
    held.start()
    held.replayed(held.all(), [A, B], clock.now, whole=True)
    assert set(held.all()) == {A, B}
    assert held.start() == B


def test_a_replay_does_not_take_back_what_left_while_it_was_asked(held: Held, clock: Clock) -> None:
    """The keeper settled A between the question and the answer; running it again would be a duplicate."""
    held.add([A], clock.now)
    known = held.all()
    held.start()
    held.finish(Ack())
    held.settled(held.take_finished())
    held.replayed(known, [A], clock.now, whole=True)
    assert held.empty()


def test_a_whole_replay_drops_what_is_somebody_elses_by_now(held: Held, clock: Clock) -> None:
    held.add([A, B], clock.now)
    held.replayed(held.all(), [B], clock.now, whole=True)
    assert held.all() == [B]
    held.replayed(held.all(), [], clock.now, whole=False)
    assert held.all() == [B], "a replay with a part missing proves nothing"


# -- looking ---------------------------------------------------------------------------------------------------------


def test_how_long_others_have_been_kept_waiting(held: Held, clock: Clock) -> None:
    assert held.blocked_for() == 0.0
    held.add([A, B], clock.now)
    held.start()
    clock.now += 3
    assert held.blocked_for() == pytest.approx(3)
    held.returned(held.take_waiting())
    assert held.blocked_for() == 0.0, "alone it keeps nobody"
    held.finish(Ack())
    held.add([C], clock.now)
    held.start()
    clock.now += 2
    assert held.blocked_for() == pytest.approx(2), "what is finished waits to be settled"


def test_being_given_something_wakes_the_keeper(held: Held, clock: Clock) -> None:
    held.busy.clear()
    held.add([A], clock.now)
    assert held.busy.is_set()
