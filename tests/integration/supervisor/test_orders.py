"""What an operator tells one worker: quiet, resume, stop, restart; the others go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.core.control import WorkerOrder
from delayq.core.errors import InvalidInput, WorkerNotFound
from delayq.core.states import State
from tests.support.supervision import House
from tests.support.waiting import wait_until


def announced(house: House) -> dict[str, str]:
    """The state of each process by its name."""
    return {one.name: str(one.about["state"]) for one in house.client.workers()}


def one_of(house: House, pid: int) -> str:
    """The name of the process whose supervisor has this pid."""
    wait_until(lambda: any(one.about.get("supervisor") == pid for one in house.client.workers()), what="it is there")
    return next(one.name for one in house.client.workers() if one.about.get("supervisor") == pid)


@pytest.mark.parametrize("config", [{}, {"processes": 2}, {"threads": 2}])
def test_a_quiet_worker_ends_its_jobs_and_takes_none(house: House, config: dict[str, Any]) -> None:
    with house.open(**config) as shop:
        name = one_of(house, shop.pid)
        house.schedule("held", "running")
        house.until_started("running")
        told = house.client.order_worker(name, "quiet")
        assert (told.order, name in [one.name for one in told.processes]) == (WorkerOrder.QUIET, True)
        wait_until(lambda: set(announced(house).values()) == {"quiet"}, what="all of its processes say so")
        house.schedule("good", "later")
        house.let_go()
        house.until_gone("running")
        assert (house.state("later"), house.starts("later")) == (State.READY, [])
        assert shop.alive()
        house.client.order_worker(told.name, "resume")
        house.until_gone("later")
        wait_until(lambda: set(announced(house).values()) == {"working"}, what="it says so")


@pytest.fixture
def next_door(house: House, tmp_path: Path) -> Iterator[House]:
    """The same server, for a second worker."""
    (tmp_path / "next").mkdir()
    made = House(house.url, tmp_path / "next")
    yield made
    made.close()


def test_another_worker_takes_what_the_quiet_one_leaves(house: House, next_door: House) -> None:
    with house.open() as quiet, next_door.open():
        house.client.order_worker(one_of(house, quiet.pid), "quiet")
        wait_until(lambda: "quiet" in announced(house).values(), what="it is quiet")
        house.schedule("good", "g1", "g2", "g3")
        house.until_gone("g1", "g2", "g3")
    assert house.rows("start") == []
    assert len(next_door.rows("end")) == 3


@pytest.mark.parametrize(("order", "reason"), [("stop", "stopped"), ("restart", "restart")])
def test_a_stopped_worker_ends_its_job_and_leaves_with_0(
    house: House, next_door: House, order: str, reason: str
) -> None:
    with house.open() as shop:
        name = one_of(house, shop.pid)
        house.schedule("held", "running")
        house.until_started("running")
        with next_door.open() as other:
            one_of(house, other.pid)
            house.client.order_worker(name, order)
            wait_until(lambda: announced(house).get(name) == "leaving", what="it leaves")
            house.let_go()
            assert (shop.ended(), shop.reason()) == (0, reason)
            house.until_gone("running")
            assert house.rows("end", "running"), "what ran was finished"
            house.schedule("good", "g1")
            house.until_gone("g1")
            assert len(next_door.starts("g1")) == 1, "the other worker goes on"


def test_a_stop_is_bounded_by_the_grace(house: House) -> None:
    with house.open(grace_ms=1_000) as shop:
        name = one_of(house, shop.pid)
        house.schedule("held", "long")
        house.until_started("long")
        house.client.order_worker(name, "stop")
        assert (shop.ended(), shop.reason()) == (0, "stopped")
    assert house.state("long") is State.READY, "it was handed back"
    assert house.job("long").attempts == 0


def test_a_worker_that_missed_the_hint_obeys_all_the_same(house: House) -> None:
    with house.open() as shop:
        name = one_of(house, shop.pid)
        worker = next(one.worker for one in house.client.workers() if one.name == name)
        house.order_silently(worker, "quiet", 60_000)
        wait_until(lambda: set(announced(house).values()) == {"quiet"}, timeout=30, what="it has looked by itself")
        wait_until(lambda: house.order_kept_ms(worker) > 60_000, timeout=30, what="it keeps the order it obeys")


def test_a_signal_still_stops_a_quiet_worker(house: House) -> None:
    with house.open() as shop:
        house.client.order_worker(one_of(house, shop.pid), "quiet")
        wait_until(lambda: set(announced(house).values()) == {"quiet"}, what="it is quiet")
        shop.signal(signal.SIGCONT)
        house.schedule("good", "g1")
        shop.signal(signal.SIGTERM)
        assert (shop.ended(), shop.reason()) == (0, "interrupted")
    assert house.starts("g1") == [], "CONT undoes what USR2 did, and no order"


def test_an_unknown_worker_and_an_unknown_order_are_refused(house: House) -> None:
    with pytest.raises(WorkerNotFound, match="No live worker is called 'dq:none:1:a'"):
        house.client.order_worker("dq:none:1:a", "stop")
    with pytest.raises(InvalidInput, match="'halt' is no order for a worker"):
        house.client.order_worker("dq:none:1:a", "halt")
