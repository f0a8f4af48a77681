"""A running job is asked to stop: it ends, it is neither failed nor tried again."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.states import Answer, State
from tests.support.supervision import House

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


@pytest.mark.timed
@pytest.mark.parametrize(("handler", "config"), CASES)
def test_cancelled_is_not_failed(house: House, handler: str, config: dict[str, Any]) -> None:
    house.client.queue_set("default", lease="1s")
    house.schedule(handler, "c1", seconds=60)
    with house.open(kill_after_ms=600, grace_ms=500, **config) as shop:
        house.until_started("c1")
        assert house.client.cancel("c1", running=True) is Answer.RUNNING
        house.until_gone("c1")
        house.schedule("good", "g1")
        house.until_gone("g1")
        assert shop.alive()
    assert len(house.starts("c1")) == 1
    assert house.rows("end", "c1") == []
    assert (house.state("c1"), house.counter("failed_total"), house.counter("reclaimed_total")) == (State.ABSENT, 0, 0)


def test_a_handler_may_look_for_itself(house: House) -> None:
    house.client.queue_set("default", lease="1s")
    house.schedule("polite", "p1")
    with house.open(kill_after_ms=60_000):
        house.until_started("p1")
        house.client.cancel("p1", running=True)
        house.until_gone("p1")
    assert len(house.rows("heard", "p1")) == 1
