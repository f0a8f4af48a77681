"""Threads and event loops: many at once, and a suspect alone all the same, in a process of its own."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.machine import fair_clock
from tests.support.supervision import House
from tests.support.waiting import wait_until


def test_async_handlers_run_many_at_once(house: House) -> None:
    ids = [f"a{n}" for n in range(50)]
    house.schedule("async_held", *ids)
    with house.open(stop_when_empty=True, asynchronous=True) as shop:
        wait_until(lambda: len(house.rows("start")) == 50, what="all have begun, and none has ended")
        house.let_go()
        assert shop.ended() == 0
    assert [len(house.starts(job_id)) for job_id in ids] == [1] * 50


def test_no_more_at_once_than_there_are_places(house: House) -> None:
    house.schedule("async_held", *[f"a{n}" for n in range(12)], seconds=0.05)
    with house.open(stop_when_empty=True, asynchronous=True, concurrency=4) as shop:
        wait_until(lambda: len(house.rows("start")) >= 4, what="all places are taken")
        house.let_go()
        assert shop.ended() == 0
    assert _most_at_once(house) == 4


def test_threads_run_as_many_as_there_are(house: House) -> None:
    house.schedule("held", *[f"g{n}" for n in range(12)], seconds=0.05)
    with house.open(stop_when_empty=True, threads=4) as shop:
        wait_until(lambda: len(house.rows("start")) >= 4, what="all threads work")
        house.let_go()
        assert shop.ended() == 0
    assert _most_at_once(house) == 4


def test_plain_and_async_handlers_in_one_child(house: House) -> None:
    plain, async_ = [f"g{n}" for n in range(30)], [f"a{n}" for n in range(30)]
    for one, other in zip(plain, async_, strict=True):
        house.schedule("good", one, seconds=0.01)
        house.schedule("async_good", other, seconds=0.05)
    with house.open(stop_when_empty=True, asynchronous=True) as shop:
        assert shop.ended() == 0
    assert [len(house.starts(job_id)) for job_id in [*plain, *async_]] == [1] * 60


def test_a_job_is_settled_when_it_ends_and_not_when_the_next_one_comes(house: House) -> None:
    house.schedule("async_held", "long")
    house.schedule("async_good", "short", seconds=0.1)
    with house.open(asynchronous=True):
        house.until_started("long")
        house.until_gone("short")
        assert house.state("long") is State.RESERVED
        house.let_go()
        house.until_gone("long")


def test_a_handler_that_exits_through_the_loop_does_not_end_it(house: House) -> None:
    house.schedule("async_exit", "x1")
    house.schedule("async_good", "a1", seconds=0.5)
    with house.open(asynchronous=True, tries=1) as shop:
        house.until("x1", State.FAILED)
        house.until_gone("a1")
        house.schedule("async_good", "a2")
        house.until_gone("a2")
        assert shop.alive()
    assert house.starts("a1") == house.starts("a2")
    assert house.job("x1").recoveries == 0


@pytest.mark.parametrize("config", [{"threads": 4}, {"asynchronous": True}])
def test_a_suspect_starts_where_nothing_else_runs(house: House, config: dict[str, Any]) -> None:
    """Its first process was killed from outside: an innocent suspect. The others need not wait for it."""
    kind = "async_" if "asynchronous" in config else ""
    house.schedule(f"{kind}held", "suspect", seconds=1.0)
    with house.open(**config) as shop:
        os.kill(house.until_started("suspect"), signal.SIGKILL)
        house.let_go()
        others = [f"o{n}" for n in range(20)]
        house.schedule(f"{kind}good", *others, seconds=0.3)
        house.until_gone("suspect", *others)
        assert shop.alive()
    first, again = house.starts("suspect")
    assert first != again
    assert again not in {pid for job_id in others for pid in house.starts(job_id)}


@pytest.mark.timed
def test_a_suspect_does_not_wait_for_what_runs(house: House) -> None:
    house.schedule("async_held", "suspect", seconds=0.2)
    with house.open(asynchronous=True, mover=True):
        os.kill(house.until_started("suspect"), signal.SIGKILL)
        house.let_go()
        house.schedule("async_good", "long", seconds=3.0)
        began = fair_clock()
        house.until_started("long")
        house.until_gone("suspect")
        assert house.state("long") is State.RESERVED, "it runs all the while"
        assert house.counter("reclaimed_total") == 1
        assert fair_clock() - began < 12
    assert len(house.starts("suspect")) == 2


def _most_at_once(house: House) -> int:
    rows = [(float(row[3]), 1 if row[0] == "start" else -1) for word in ("start", "end") for row in house.rows(word)]
    now = most = 0
    for _, step in sorted(rows):
        now += step
        most = max(most, now)
    return most
