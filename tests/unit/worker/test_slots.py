"""Shared memory: what one process writes another reads, whole or not at all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from delayq.drivers.base import Claim, Delivery
from delayq.worker.slots import CANCEL, LOST, RUNNING, WAITING, Slots, Word

QUEUES = ("orders", "mails")


def delivery(job_id: str, entry: str = "1-1", queue: str = "orders") -> Delivery:
    return Delivery(queue, job_id, entry, b"{}", 0, 0)


def in_a_child(work: Callable[[], None]) -> int:
    """The exit code of a forked process that does the work."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  (told by the exit code)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_a_child_writes_its_parent_reads() -> None:
    slots = Slots(QUEUES, 8)

    def child() -> None:
        slots.write([(3, delivery("a", "1700000000000-7")), (5, delivery("b" * 255, "2-2", "mails"))])
        slots.started[5], slots.soft_at[5], slots.phases[5] = 10.5, 70.5, RUNNING

    assert in_a_child(child) == 0
    epoch, (one, other) = slots.read()
    assert (one.slot, one.claim, one.phase) == (3, Claim("orders", "a", "1700000000000-7"), WAITING)
    assert (other.slot, other.claim, other.phase) == (5, Claim("mails", "b" * 255, "2-2"), RUNNING)
    assert (other.started, other.soft_at) == (10.5, 70.5)
    assert one.generation == other.generation == epoch


def test_what_a_parent_orders_its_child_sees() -> None:
    slots = Slots(QUEUES, 4)
    slots.write([(0, delivery("a"))])
    (seen,) = slots.read()[1]
    slots.give_order(seen, CANCEL)
    slots.give_order(seen, LOST)

    def child() -> None:
        assert slots.orders_for(0, seen.generation) == CANCEL | LOST
        assert slots.ints[Word.ORDERS] == 2

    assert in_a_child(child) == 0


def test_an_order_for_what_lay_there_before_does_not_count() -> None:
    slots = Slots(QUEUES, 4)
    slots.write([(0, delivery("a"))])
    (old,) = slots.read()[1]
    generation = slots.write([(0, delivery("b"))])
    slots.give_order(old, LOST)
    assert slots.orders_for(0, generation) == 0
    slots.give_order(old._replace(generation=generation), CANCEL)
    assert slots.orders_for(0, generation) == CANCEL


def test_a_confirmation_names_what_it_covers() -> None:
    slots = Slots(QUEUES, 4)
    assert slots.confirmed() == (0, 0.0)
    slots.confirm(4, 12.5)
    assert slots.confirmed() == (4, 12.5)


def test_records_are_never_half_old_and_half_new() -> None:
    """A child that writes all the time, two ids of one letter each; a reader that trusts an epoch sees one letter."""
    slots = Slots(QUEUES, 2)
    end, latest = time.monotonic() + 1.0, time.monotonic() + 40.0

    def child() -> None:
        letters = ("a", "b")
        turn = 0
        while time.monotonic() < latest:
            turn += 1
            letter = letters[turn % 2]
            slots.write([(0, delivery(letter * 200, f"{turn}-1")), (1, delivery(letter * 100, f"{turn}-1"))])

    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    whole = 0
    try:
        while time.monotonic() < end or (whole <= 100 and time.monotonic() < latest):
            epoch, seen = slots.read()
            if epoch and len(seen) == 2:
                whole += 1
                assert seen[0].claim.entry == seen[1].claim.entry
                assert len({*seen[0].claim.id, *seen[1].claim.id}) == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert whole > 100


@pytest.mark.parametrize("stuck", [1, 7])
def test_a_child_that_died_while_it_wrote_can_still_be_read(stuck: int) -> None:
    slots = Slots(QUEUES, 2)
    slots.write([(0, delivery("a"))])
    slots.ints[Word.EPOCH] = stuck
    epoch, (seen,) = slots.read()
    assert (epoch, seen.claim.id) == (0, "a")
