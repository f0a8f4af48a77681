"""Who renews: the supervisor, by what its children wrote down, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.core.states import State
from tests.support.supervision import House


@pytest.fixture
def hasty(redis_url: str, tmp_path: Path) -> Iterator[House]:
    made = House(redis_url, tmp_path, lease_ms=1_000)
    yield made
    made.close()


@pytest.mark.timed
@pytest.mark.parametrize("handler", ["hold_the_lock", "spin", "good"])
def test_a_handler_keeps_its_lease_whatever_it_does(hasty: House, handler: str) -> None:
    """Three leases long, with a janitor that looks every third of one."""
    hasty.schedule(handler, "h1", seconds=3.5)
    with hasty.open(timeout_ms=0, processes=2):
        hasty.until_gone("h1")
    assert len(hasty.starts("h1")) == 1
    assert hasty.counter("reclaimed_total") == 0


@pytest.mark.timed
@pytest.mark.parametrize("handler", ["hold_the_lock", "freeze"])
def test_jobs_behind_a_child_that_stands_still_are_handed_back_too(hasty: House, handler: str) -> None:
    """Not by its watchdog, which stands still with it: by the supervisor, once the child must not start them."""
    ids = [f"g{n}" for n in range(40)]
    hasty.schedule("good", *ids[:20])
    hasty.schedule(handler, "still", seconds=6.0)
    hasty.schedule("good", *ids[20:])
    with hasty.open(processes=2, timeout_ms=0):
        hasty.until_started("still")
        hasty.until_gone(*ids, timeout=5.5)
        assert hasty.state("still") is State.RESERVED
        hasty.until_gone("still")
    assert [len(hasty.starts(job_id)) for job_id in [*ids, "still"]] == [1] * 41
    assert hasty.counter("reclaimed_total") == 0


def test_jobs_behind_a_slow_one_are_handed_back_and_run_elsewhere(house: House) -> None:
    ids = [f"g{n}" for n in range(50)]
    house.schedule("good", *ids[:25])
    house.schedule("held", "slow")
    house.schedule("good", *ids[25:])
    with house.open(processes=2):
        house.until_started("slow")
        house.until_gone(*ids)
        assert house.state("slow") is State.RESERVED
        house.let_go()
        house.until_gone("slow")
    assert len(house.starts("slow")) == 1
