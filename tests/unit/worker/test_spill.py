"""Outcomes as bytes: whatever a child leaves, its supervisor settles as the child would have."""

from __future__ import annotations

import pytest

from delayq.core import failure as failures
from delayq.core.outcome import Ack, GiveUp, Outcome, Release
from delayq.drivers.base import Delivery
from delayq.worker import spill
from delayq.worker.slots import FINISHED, SPILL_BYTES, SPILLED, Slots

KEPT = [Ack(), Ack(60_000), Ack(60_000, b'{"a":1}'), Release(500, 3, 1, None)]


@pytest.mark.parametrize("outcome", KEPT)
def test_without_an_error_it_is_the_same(outcome: Outcome) -> None:
    assert spill.decode(spill.encode(outcome, 7)) == outcome


def raised() -> ValueError:
    try:
        raise ValueError("odd")
    except ValueError as error:
        return error


@pytest.mark.parametrize("outcome", [Release(500, 3, 1, raised()), GiveUp(3, 1, raised())], ids=["release", "give up"])
def test_an_error_leaves_its_record(outcome: Release | GiveUp) -> None:
    again = spill.decode(spill.encode(outcome, 7))
    assert isinstance(again, Release | GiveUp)
    assert type(again) is type(outcome)
    assert (again.attempts, again.exceptions) == (3, 1)
    assert again.error is not None
    record = failures.describe(again.error, at_ms=99, attempt=99)
    assert (record.type, record.message, record.at_ms, record.attempt) == ("ValueError", "odd", 7, 3)
    assert "in raised" in record.traceback


def test_a_release_keeps_its_delay() -> None:
    again = spill.decode(spill.encode(Release(500, 3, 1, raised()), 7))
    assert isinstance(again, Release)
    assert again.delay_ms == 500


def test_what_ended_is_found_in_the_slots() -> None:
    slots = Slots(("q",), 4)
    slots.write([(n, Delivery("q", f"j{n}", f"{n}-1", b"", 0, 0)) for n in range(3)])
    writer = spill.SpillWriter(slots)
    slots.phases[0] = FINISHED
    assert writer.write(2, spill.encode(Ack(5, b"1"), 0))
    slots.phases[2] = SPILLED
    ended = spill.ended(slots, slots.read()[1])
    assert [(claim.id, outcome) for claim, outcome in ended] == [("j0", Ack()), ("j2", Ack(5, b"1"))]


def test_room_comes_back_when_all_is_settled() -> None:
    slots = Slots(("q",), 4)
    writer = spill.SpillWriter(slots)
    half = b"x" * (SPILL_BYTES // 2)
    assert writer.write(0, half)
    assert writer.write(1, half)
    assert not writer.write(2, b"y")
    writer.settled()
    assert not writer.write(2, b"y"), "the other half is still needed"
    writer.settled()
    assert writer.write(2, b"y")
    assert slots.outcome(2) == b"y"


def test_an_outcome_that_was_written_over_is_left_out() -> None:
    slots = Slots(("q",), 2)
    slots.write([(0, Delivery("q", "j", "1-1", b"", 0, 0))])
    spill.SpillWriter(slots).write(0, b"\xc1 no outcome")
    slots.phases[0] = SPILLED
    assert spill.ended(slots, slots.read()[1]) == []
