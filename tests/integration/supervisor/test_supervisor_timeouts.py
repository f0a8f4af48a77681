"""Timeouts: raised softly, then with force; settled as timed out; the good jobs behind are done all the same."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.states import State
from tests.support.supervision import House

UNSTOPPABLE: list[tuple[str, dict[str, Any]]] = [
    ("good", {}),
    ("good", {"threads": 4}),
    ("spin", {}),
    ("spin", {"threads": 4}),
    ("deaf", {}),
    ("deaf", {"threads": 4}),
    ("hold_the_lock", {}),
    ("hold_the_lock", {"threads": 4}),
    ("async_good", {"asynchronous": True}),
    ("async_deaf", {"asynchronous": True}),
    ("async_spin", {"asynchronous": True}),
]


@pytest.mark.timed
@pytest.mark.parametrize(("handler", "config"), UNSTOPPABLE)
def test_whatever_a_handler_does_its_timeout_ends_it(house: House, handler: str, config: dict[str, Any]) -> None:
    ids = [f"g{n}" for n in range(50)]
    house.schedule(handler, "late", seconds=60)
    with house.open(timeout_ms=700, kill_after_ms=700, grace_ms=700, tries=2, backoff_ms=300, **config):
        house.until_started("late")  # else it may hold the others' thread in the middle of them: see the next test
        house.schedule("good", *ids)
        house.until("late", State.FAILED, timeout=25)
        house.until_gone(*ids)
    failed = house.job("late")
    assert failed.envelope is not None
    assert (failed.envelope.attempts, failed.recoveries) == (2, 0)
    assert failed.failure is not None
    assert [failed.failure.type, *(past.type for past in failed.failure.history)] == ["JobTimedOut", "JobTimedOut"]
    assert len(house.starts("late")) == 2
    assert house.rows("end", "late") == []
    first, second = (float(row[3]) for row in house.rows("start", "late"))
    assert second - first >= 1.0, "the timeout and the backoff have passed in between"
    # What was killed with it is handed back uncounted; so it may have begun again, but was never charged.
    assert house.counter("reclaimed_total") == 0
    assert house.counter("failed_total") == 1


@pytest.mark.timed
def test_who_is_late_because_of_another_is_not_charged(house: House) -> None:
    """Three run beside one that holds the interpreter's lock: nobody can tell who kept whom, until each is alone."""
    ids = ["g1", "g2", "g3"]
    house.schedule("good", *ids, seconds=0.7)
    with house.open(timeout_ms=1_000, kill_after_ms=1_000, grace_ms=1_000, tries=2, backoff_ms=300, threads=4):
        for job_id in ids:
            house.until_started(job_id)
        house.schedule("hold_the_lock", "late", seconds=60)
        house.until("late", State.FAILED, timeout=30)
        house.until_gone(*ids)
    assert [len(house.starts(job_id)) for job_id in ids] == [2, 2, 2]
    failed = house.job("late")
    assert failed.envelope is not None
    assert failed.failure is not None
    assert (failed.envelope.attempts, failed.failure.type, len(house.starts("late"))) == (2, "JobTimedOut", 3)
    assert house.counter("failed_total") == 1


def test_a_soft_end_keeps_the_process(house: House) -> None:
    house.schedule("hasty", "late", seconds=60)
    house.schedule("good", "g1")
    with house.open():
        house.until("late", State.FAILED)
        house.until_gone("g1")
    assert house.starts("late") == house.starts("g1")


def test_the_handlers_timeout_goes_first(house: House) -> None:
    house.schedule("hasty", "h1", seconds=60)
    with house.open(timeout_ms=60_000):
        house.until("h1", State.FAILED)
    failed = house.job("h1")
    assert failed.envelope is not None
    assert failed.envelope.attempts == 1, "on_timeout=fail: no second attempt, whatever tries are left"
    assert failed.failure is not None
    assert failed.failure.type == "JobTimedOut"


def test_no_timeout_at_all(house: House) -> None:
    house.schedule("good", "g1", seconds=1.0)
    with house.open(timeout_ms=0):
        house.until_gone("g1")
    assert len(house.rows("end", "g1")) == 1


def test_a_handler_may_clean_up_before_it_goes(house: House) -> None:
    house.schedule("tidy_up", "t1", seconds=60)
    with house.open(timeout_ms=300, tries=1):
        house.until("t1", State.FAILED)
    assert len(house.rows("tidied", "t1")) == 1
