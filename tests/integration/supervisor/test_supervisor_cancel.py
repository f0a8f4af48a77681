"""A running job is asked to stop: it ends, it is neither failed nor tried again."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.states import Answer, State
from tests.support.supervision import House
from tests.support.waiting import wait_until

CASES: list[tuple[str, dict[str, Any]]] = [
    ("good", {}),
    ("good", {"threads": 2}),
    ("spin", {"threads": 2}),
    ("deaf", {}),
    ("deaf", {"threads": 2}),
    ("hold_the_lock", {}),
    ("async_good", {"asynchronous": True}),
    ("async_deaf", {"asynchronous": True}),
]


@pytest.mark.parametrize(("handler", "config"), CASES)
def test_cancelled_is_not_failed(house: House, handler: str, config: dict[str, Any]) -> None:
    house.client.queue_set("default", lease="90s")  # it is renewed every thirty: that is not what ends the job
    house.schedule(handler, "c1", seconds=60)
    with house.open(kill_after_ms=600, grace_ms=500, **config) as shop:
        house.until_started("c1")
        assert house.client.cancel("c1", running=True) is Answer.RUNNING
        house.until_gone("c1", timeout=25)
        house.schedule("good", "g1")
        house.until_gone("g1")
        assert shop.alive()
    assert len(house.starts("c1")) == 1
    assert house.rows("end", "c1") == []
    assert (house.state("c1"), house.counter("failed_total"), house.counter("reclaimed_total")) == (State.ABSENT, 0, 0)


def test_a_hint_that_is_lost_is_made_up_for_by_the_next_renewal(house: House) -> None:
    house.client.queue_set("default", lease="1s")
    house.schedule("good", "c1", seconds=60)
    with house.open(kill_after_ms=600):
        house.until_started("c1")
        house.ask_silently("c1")
        house.until_gone("c1")
    assert house.rows("end", "c1") == []


@pytest.mark.timed
def test_a_timeout_and_a_cancellation_that_meet_are_told_as_what_they_are(house: House) -> None:
    """A deaf job runs into its timeout and is asked to stop; the wish decides, whoever ends it in the end."""
    house.client.queue_set("default", lease="90s")
    house.schedule("deaf", "c1", seconds=60)
    with house.open(kill_after_ms=1_500, timeout_ms=500, tell=True) as shop:
        house.until_started("c1")
        wait_until(lambda: house.rows("heard", "c1"), what="its time is over")
        house.ask_silently("c1")
        house.until_gone("c1")
        wait_until(lambda: "c1 stopped" in shop.said(), what="the end is told")
        assert "c1 released" not in shop.said()
    assert len(house.starts("c1")) == 1


def test_the_process_of_a_deaf_thread_is_replaced_because_of_the_cancellation(house: House) -> None:
    house.client.queue_set("default", lease="90s")
    house.schedule("good", "c1", seconds=60)
    with house.open(threads=4, kill_after_ms=600, grace_ms=500, tell=True) as shop:
        house.until_started("c1")
        house.client.cancel("c1", running=True)
        house.until_gone("c1")
        wait_until(lambda: "c1 stopped" in shop.said(), what="the end is told")
        assert "job c1 did not end when it was cancelled; the process is replaced" in shop.said()
        assert "is killed: a cancelled job did not end" in shop.said()


def test_a_handler_may_look_for_itself(house: House) -> None:
    house.client.queue_set("default", lease="1s")
    house.schedule("polite", "p1")
    with house.open(kill_after_ms=60_000):
        house.until_started("p1")
        house.client.cancel("p1", running=True)
        house.until_gone("p1")
    assert len(house.rows("heard", "p1")) == 1
