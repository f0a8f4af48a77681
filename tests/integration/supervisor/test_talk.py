"""Running jobs and the outside: progress, partial results, the end of the worker; what workers say of themselves."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from delayq.core.progress import Progress
from delayq.core.states import State
from tests.support.supervision import House
from tests.support.waiting import wait_until

TALKERS = {"more": ["tests.support.supervised_talkers"]}
CREWS: list[dict[str, Any]] = [{}, {"threads": 2}]


def told(house: House, job_id: str) -> Progress:
    """What a job told, at least something."""
    seen: list[Progress] = []

    def look() -> bool:
        found = house.client.progress(job_id)
        seen.extend([found] if found else [])
        return bool(seen)

    wait_until(look, what=f"{job_id} tells something")
    return seen[-1]


@pytest.mark.parametrize("config", CREWS)
def test_progress_and_a_partial_result_are_seen_while_it_runs(house: House, config: dict[str, Any]) -> None:
    house.schedule("tells", "t1")
    with house.open(**TALKERS, **config):
        told(house, "t1")
        wait_until(lambda: told(house, "t1").partial is not None, what="the last word is there")
        last = told(house, "t1")
        assert (last.done, last.total, last.note, last.partial) == (10, 10, "row 10", {"rows": [1, 2]})
        house.ledger.with_name("more").touch()
        wait_until(lambda: told(house, "t1").done == 7, what="it told more")
        assert told(house, "t1").partial == {"rows": [1, 2]}, "what was told of the other kind stays"
        assert house.job("t1").progress == told(house, "t1")
        house.ledger.with_name("go").touch()
        house.until_gone("t1")
    assert house.client.progress("t1") is None


def test_async_handlers_tell_too(house: House) -> None:
    house.schedule("async_tells", "t1")
    with house.open(**TALKERS):
        assert told(house, "t1").fraction == 0.5
        house.ledger.with_name("go").touch()
        house.until_gone("t1")


def test_nonsense_is_refused_in_the_handler(house: House) -> None:
    house.schedule("tells_nonsense", "t1")
    with house.open(**TALKERS):
        house.until("t1", State.FAILED)
    failure = house.job("t1").failure
    assert failure is not None
    assert "done=-1 is no count" in failure.message


def test_what_is_taken_back_starts_without_it(house: House) -> None:
    house.schedule("tells", "t1")
    with house.open(**TALKERS):
        told(house, "t1")
        os.kill(house.starts("t1")[0], signal.SIGKILL)
        house.until_started("t1", times=2)
        assert told(house, "t1").at_ms > 0
        assert house.job("t1").recoveries == 1
        house.ledger.with_name("more").touch()
        house.ledger.with_name("go").touch()
        house.until_gone("t1")
    assert house.client.progress("t1") is None


@pytest.mark.parametrize("handler", ["interruptible", "async_interruptible"])
@pytest.mark.parametrize("config", CREWS)
def test_an_interruptible_job_hears_of_the_end(house: House, handler: str, config: dict[str, Any]) -> None:
    house.schedule(handler, "i1")
    with house.open(**TALKERS, **config, grace_ms=60_000) as shop:
        house.until_started("i1")
        shop.signal(signal.SIGTERM)
        assert shop.ended(timeout=30) == 0, "long before its time is over"
    assert len(house.rows("heard", "i1")) == 1
    after = house.job("i1")
    assert (after.state in (State.SCHEDULED, State.READY), after.attempts) == (True, 0)


def test_it_hears_of_a_restart_too(house: House) -> None:
    house.schedule("interruptible", "i1")
    with house.open(**TALKERS, processes=2) as shop:
        house.until_started("i1")
        wait_until(lambda: len(house.client.workers()) == 2, what="both children are there")
        house.client.restart_workers()
        assert shop.ended() == 0
    assert len(house.rows("heard", "i1")) == 1


@pytest.mark.timed
def test_a_worker_says_what_it_runs_and_since_when(house: House) -> None:
    with house.open(processes=2) as shop:
        wait_until(lambda: len(house.client.workers()) == 2, what="both are there")
        idle = house.client.workers()[0]
        assert (idle.about["state"], idle.about["running"], idle.about["late_ms"]) == ("working", [], None)
        before = house.client.control().now_ms
        house.schedule("good", "long", seconds=8)
        house.until_started("long")
        wait_until(lambda: any(one.about["running"] for one in house.client.workers()), what="it says so")
        after = house.client.control().now_ms
        (busy,) = (one for one in house.client.workers() if one.about["running"])
        (job,) = busy.about["running"]
        assert (job["id"], job["queue"]) == ("long", "default")
        assert before - 50 <= job["since_ms"] <= after
        assert busy.about["held"] == busy.about["runs"] == 1
        assert busy.about["late_ms"] < 2_000
        assert busy.about["pid"] == house.starts("long")[0]
        assert busy.about["supervisor"] == shop.pid
        assert busy.about["memory_bytes"] > 1 << 20
