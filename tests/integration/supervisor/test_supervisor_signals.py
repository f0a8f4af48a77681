"""Signals: a worker leaves within its grace, gives back what it held, uncounted, and leaves nobody behind."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.supervision import House
from tests.support.waiting import wait_until

TERM, INT = signal.SIGTERM, signal.SIGINT


def test_what_runs_may_end_within_the_grace_and_the_rest_is_handed_back(house: House) -> None:
    house.schedule("held", "running")
    with house.open(grace_ms=60_000) as shop:
        house.until_started("running")
        house.schedule("good", *[f"g{n}" for n in range(10)])
        shop.signal(TERM)
        wait_until(lambda: "stopping (terminated by SIGTERM)" in shop.said(), what="it has heard")
        house.let_go()
        assert shop.ended() == 0
    assert shop.reason() == "interrupted"
    assert len(house.rows("end", "running")) == 1
    assert house.state("running") is State.ABSENT
    [stats] = house.client.stats("default")
    assert (stats.ready, stats.reserved) == (10, 0)


LONG: list[tuple[str, dict[str, Any]]] = [
    ("tidy_up", {}),
    ("tidy_up_in_python", {"threads": 4}),
    ("async_tidy_up", {"asynchronous": True}),
]


@pytest.mark.parametrize(("handler", "config"), LONG)
def test_a_job_longer_than_the_grace_cleans_up_and_is_handed_back(
    house: House, handler: str, config: dict[str, Any]
) -> None:
    house.schedule(handler, "long", seconds=60)
    with house.open(grace_ms=2_000, tries=1, **config) as shop:
        house.until_started("long")
        shop.signal(TERM)
        assert shop.ended() == 0
        assert "is killed" not in shop.said(), "it ended by itself"
        assert re.search(r"the grace of 2s .* long \(has run for .*--grace or DELAYQ_GRACE", shop.said())
        assert shop.said().count("is nearly over") == 1
    assert len(house.rows("tidied", "long")) == 1
    held = house.job("long")
    assert held.envelope is not None
    assert (held.envelope.attempts, held.recoveries, held.failure) == (0, 0, None)
    house.let_go()
    with house.open(**config):
        house.until_started("long", 2)


def test_a_job_that_does_not_hear_the_interrupt_is_killed_at_the_end_of_the_grace(house: House) -> None:
    house.schedule("deaf", "long", seconds=60)
    with house.open(grace_ms=1_000, tries=1) as shop:
        house.until_started("long")
        shop.signal(TERM)
        assert shop.ended() == 0
        assert "is killed: the worker stops" in shop.said()
    assert len(house.rows("heard", "long")) == 1
    assert (house.state("long"), house.job("long").recoveries) == (State.READY, 0)


def test_a_worker_names_the_jobs_that_may_outlast_its_grace(house: House) -> None:
    """`hasty` says 300 ms; the others say nothing, so nothing is known of them."""
    with house.open(grace_ms=200) as shop:
        wait_until(lambda: "grace of 200ms" in shop.said(), what="it says so")
    assert "longer than the grace of 200ms that a stopping worker gives them: hasty (300ms)." in shop.said()
    with house.open(grace_ms=301) as shop:
        house.schedule("good", "g1")
        house.until_gone("g1")
    assert "longer than the grace of 301ms" not in shop.said()


@pytest.mark.timed
def test_a_second_signal_does_not_wait(house: House) -> None:
    house.schedule("good", "running", seconds=30)
    with house.open(grace_ms=60_000) as shop:
        house.until_started("running")
        shop.signal(TERM)
        wait_until(lambda: "stopping (terminated by SIGTERM)" in shop.said(), what="it has heard the first")
        shop.signal(INT)
        assert shop.ended() == 130
        assert shop.took_s < 1.5
    assert shop.reason() == "aborted"
    assert (house.state("running"), house.job("running").recoveries) == (State.READY, 0)


def states(house: House) -> list[object]:
    """What the workers say of themselves."""
    return [one.about["state"] for one in house.client.workers()]


def test_pause_and_go_on(house: House) -> None:
    with house.open(processes=2) as shop:
        house.schedule("good", "g1")
        house.until_gone("g1")
        shop.signal(signal.SIGUSR2)
        ids = [f"p{n}" for n in range(5)]
        wait_until(lambda: states(house) == ["paused", "paused"], what="both are told")
        # Whatever a blocked reader still gets is handed back.
        house.schedule("good", *ids)
        wait_until(lambda: house.client.stats("default")[0].ready == 5, what="all wait")
        assert [house.starts(job_id) for job_id in ids] == [[]] * 5
        shop.signal(signal.SIGCONT)
        house.until_gone(*ids)
        shop.signal(TERM)
        assert shop.ended() == 0


def test_a_dump_says_what_runs_where(house: House) -> None:
    house.schedule("hold_the_lock", "stuck", seconds=30)
    with house.open(processes=2) as shop:
        pid = house.until_started("stuck")
        ((_, _, _, began),) = house.rows("start", "stuck")
        # One dump alone: the signal for the stacks also ends the call that holds the lock.
        wait_until(lambda: time.monotonic() > float(began) + 1.0, what="the lock has been held for a second")
        shop.signal(signal.SIGTTIN)
        wait_until(lambda: "in hold_the_lock" in shop.said(), what="the stacks are there")
        said, most = shop.said(), time.monotonic() - float(began)
    assert f"process {pid}: working, holds 1, runs 1" in said
    assert "its interpreter has been held for" in said
    told = re.search(r"default/stuck for ([0-9.]+) s", said)
    assert told is not None
    assert 0.9 < float(told[1]) <= most + 0.1
