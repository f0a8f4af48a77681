"""A whole worker that stood still: SIGSTOP and SIGCONT for all its processes. It charges no attempt."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.supervision import House
from tests.support.waiting import wait_until

FROZEN_S = 6.5
TIMEOUT_MS = 5_000
CREWS: list[tuple[str, dict[str, Any]]] = [
    ("held", {}),
    ("held", {"threads": 4}),
    ("async_held", {"asynchronous": True}),
]


@pytest.fixture
def patient(redis_url: str, tmp_path: Path) -> Iterator[House]:
    """Its lease outlives the standstill: what is tested is the timeout alone."""
    made = House(redis_url, tmp_path, lease_ms=60_000)
    yield made
    made.close()


def freeze_all(house: House) -> None:
    """Stop every process of the worker, wait, and let all go on, the supervisor last."""
    found = sorted(house.processes(), reverse=True)
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(FROZEN_S)  # the length of the fault itself
    for pid in found:
        os.kill(pid, signal.SIGCONT)


def settled(house: House) -> bool:
    return house.state("j1") is not State.RESERVED


@pytest.mark.parametrize(("handler", "config"), CREWS)
def test_a_standstill_is_no_part_of_the_timeout(patient: House, handler: str, config: dict[str, Any]) -> None:
    house = patient
    house.schedule(handler, "j1")
    with house.open(timeout_ms=TIMEOUT_MS, tries=1, **config) as shop:
        house.until_started("j1")
        freeze_all(house)
        thawed = time.monotonic()
        wait_until(lambda: "this worker stood still for" in shop.said() or settled(house), what="it goes on")
        # Longer than a watchdog waits for the word of its supervisor, and well before the timeout.
        wait_until(lambda: time.monotonic() - thawed > 1.5 or settled(house), what="it has looked at its timeouts")
        assert house.state("j1") is State.RESERVED
        house.let_go()
        house.until_gone("j1")
    assert len(house.starts("j1")) == len(house.rows("end", "j1")) == 1
    assert (house.counter("failed_total"), house.counter("reclaimed_total")) == (0, 0)


@pytest.mark.parametrize(("handler", "config"), CREWS)
def test_the_timeout_goes_on_after_a_standstill(patient: House, handler: str, config: dict[str, Any]) -> None:
    house = patient
    house.schedule(handler, "j1")
    with house.open(timeout_ms=TIMEOUT_MS, tries=1, **config):
        house.until_started("j1")
        freeze_all(house)
        house.until("j1", State.FAILED)
    failed = house.job("j1").failure
    assert failed is not None
    assert failed.type == "JobTimedOut"
    assert "its timeout or deadline allowed it 5s" in failed.message


def test_a_child_that_is_stopped_alone_costs_a_recovery_and_no_attempt(patient: House) -> None:
    """Its supervisor goes on, so nothing says how long the stop lasts: the job starts again in another process."""
    house = patient
    house.schedule("held", "j1")
    with house.open(timeout_ms=1_000, kill_after_ms=1_000, tries=1) as shop:
        os.kill(house.until_started("j1"), signal.SIGSTOP)
        house.until_started("j1", 2)
        house.let_go()
        house.until_gone("j1")
        assert "it is stopped, and its job is over its time" in shop.said()
    assert (house.counter("failed_total"), house.counter("reclaimed_total")) == (0, 1)
