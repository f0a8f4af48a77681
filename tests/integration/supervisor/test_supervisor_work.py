"""Jobs under a supervisor: they run once, end as they should, and limits and stop reasons hold for all children."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.supervision import House
from tests.support.waiting import wait_until


@pytest.mark.parametrize("config", [{}, {"processes": 2}, {"threads": 4}])
def test_every_job_runs_once(house: House, config: dict[str, Any]) -> None:
    ids = [f"g{n}" for n in range(200)]
    house.schedule("good", *ids)
    with house.open(stop_when_empty=True, **config) as shop:
        assert shop.ended() == 0
    assert shop.reason() == "empty"
    assert [len(house.starts(job_id)) for job_id in ids] == [1] * 200
    assert house.counter("acked_total") == 200


def test_two_children_share_the_work(house: House) -> None:
    """While one is busy, the other gets work: also what the first had read already."""
    house.schedule("held", *[f"g{n}" for n in range(20)])
    with house.open(stop_when_empty=True, processes=2) as shop:
        wait_until(lambda: len({row[2] for row in house.rows("start")}) == 2, what="both work")
        house.let_go()
        assert shop.ended() == 0
    assert len(house.rows("start")) == 20


@pytest.mark.parametrize("processes", [1, 3])
def test_max_jobs_counts_all_children_together(house: House, processes: int) -> None:
    house.schedule("good", *[f"g{n}" for n in range(20)])
    with house.open(max_jobs=7, processes=processes) as shop:
        assert shop.ended() == 0
    assert shop.reason() == "max_jobs"
    assert len(house.rows("start")) == 7
    assert house.counter("acked_total") == 7
    [stats] = house.client.stats("default")
    assert (stats.ready, stats.reserved) == (13, 0)


def test_once_is_one_job(house: House) -> None:
    house.schedule("good", "g1", "g2")
    with house.open(once=True, processes=2) as shop:
        assert shop.ended() == 0
    assert shop.reason() == "once"
    assert len(house.rows("start")) == 1


def test_max_time_ends_a_worker_that_has_nothing_to_do(house: House) -> None:
    with house.open(max_time_ms=500) as shop:
        assert shop.ended() == 0
    assert shop.reason() == "max_time"


def test_stop_when_empty_for_waits_that_long(house: House) -> None:
    house.schedule("good", "g1")
    began = time.monotonic()
    with house.open(stop_when_empty_for_ms=1_000) as shop:
        assert shop.ended() == 0
    assert shop.reason() == "empty_for"
    assert time.monotonic() - began >= 1.0


def test_a_worker_over_its_memory_says_so(house: House) -> None:
    with house.open(memory_mb=1) as shop:
        assert shop.ended() == 12
    assert shop.reason() == "memory"


@pytest.mark.parametrize("kind", ["exit", "interrupt", "memory", "generator", "recursion", "huge"])
def test_a_violent_exception_costs_one_attempt_and_no_more(house: House, kind: str) -> None:
    house.schedule("violent", "v1", kind=kind)
    house.until("v1", State.READY)
    house.schedule("good", *[f"g{n}" for n in range(20)])
    with house.open(stop_when_empty=True) as shop:
        assert shop.ended() == 0
    assert len(house.starts("v1")) <= 1 or kind == "recursion"
    failed = house.job("v1")
    assert (failed.state, failed.recoveries) == (State.FAILED, 0)
    assert failed.envelope is not None
    assert failed.envelope.attempts == 1
    assert failed.failure is not None
    names = {
        "exit": "SystemExit",
        "interrupt": "KeyboardInterrupt",
        "memory": "MemoryError",
        "generator": "GeneratorExit",
        "recursion": "RecursionError",
        "huge": "ValueError",
    }
    assert failed.failure.type == names[kind]
    assert house.counter("acked_total") == 20


def test_results_large_and_small_are_kept(house: House) -> None:
    house.schedule("result", "small", size=10)
    house.schedule("result", "large", size=2_000_000)
    with house.open(stop_when_empty=True) as shop:
        assert shop.ended() == 0
    assert house.job("small").result == "x" * 10
    assert house.job("large").result == "x" * 2_000_000
