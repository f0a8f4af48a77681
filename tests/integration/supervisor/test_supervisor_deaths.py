"""Children die, parents die: nothing is lost, nobody is charged for another's death, nobody stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.machine import wait_fairly
from tests.support.supervision import House, Shop
from tests.support.waiting import wait_until


@pytest.fixture
def hasty(redis_url: str, tmp_path: Path) -> Iterator[House]:
    """With a short lease, for what has to wait for its end."""
    made = House(redis_url, tmp_path, lease_ms=2_000)
    yield made
    made.close()


@pytest.fixture
def patient(redis_url: str, tmp_path: Path) -> Iterator[House]:
    """With a lease so long that what happens soon cannot have come of its end."""
    made = House(redis_url, tmp_path, lease_ms=60_000)
    yield made
    made.close()


@pytest.mark.parametrize("config", [{}, {"processes": 2}, {"threads": 4}])
def test_a_handler_that_kills_its_process_fails_at_the_fourth_vanish_and_hurts_nobody(
    house: House, config: dict[str, Any]
) -> None:
    good = [f"g{n}" for n in range(200)]
    house.schedule("good", *good[:100])
    house.schedule("kill_self", "killer")
    house.schedule("good", *good[100:])
    with house.open(**config):
        house.until("killer", State.FAILED, timeout=30)
        house.until_gone(*good)
        assert house.counter("acked_total") == 200
    failed = house.job("killer")
    assert (len(house.starts("killer")), failed.recoveries) == (4, 4)
    assert failed.failure is not None
    assert failed.failure.type == "WorkerVanished"
    assert house.counter("failed_total") == 1
    # One process, one job at a time: not even the first death takes a neighbour with it.
    if "threads" not in config:
        assert [len(house.starts(job_id)) for job_id in good] == [1] * 200
        assert house.counter("reclaimed_total") == 3


def test_a_dead_childs_jobs_start_elsewhere_long_before_their_lease_ends(patient: House) -> None:
    patient.schedule("good", "long", seconds=30)
    with patient.open(processes=2):
        pid = patient.until_started("long")
        os.kill(pid, signal.SIGKILL)
        assert patient.until_started("long", 2, timeout=patient.lease_ms / 1000 / 2) != pid
        assert patient.job("long").recoveries == 1


def test_nothing_survives_the_parents_death(hasty: House) -> None:
    house = hasty
    house.schedule("deaf", "d1", seconds=30)
    house.schedule("good", "g1", "g2")
    with house.open(processes=2) as shop:
        house.until_started("d1")
        house.until_gone("g1", "g2")
        before = house.processes()
        assert len(before) == 4  # the supervisor, two children, mover and janitor
        shop.signal(signal.SIGKILL)
        wait_until(lambda: not house.processes(), what="all processes are gone")
    with house.open():
        house.until_started("d1", 2)


def test_a_child_that_was_finished_but_not_settled_loses_nothing(house: House) -> None:
    """The job's outcome is in shared memory when its process dies in the middle of the next one."""
    ids = [f"g{n}" for n in range(30)]
    house.schedule("good", *ids)
    house.schedule("kill_self", "killer")
    with house.open(tries=1):
        house.until("killer", State.FAILED, timeout=30)
        house.until_gone(*ids)
    assert [len(house.starts(job_id)) for job_id in ids] == [1] * 30


def test_what_a_dead_child_held_unknown_is_handed_back_uncounted(patient: House) -> None:
    """Frozen while it waits: what it is given then never reaches its shared memory."""
    house = patient
    with house.open() as shop:
        house.schedule("good", "g1")
        house.until_gone("g1")
        (child,) = {int(row[2]) for row in house.rows("start")}
        held = next(job_id for job_id in ("g2", "g3", "g4", "g5", "g6") if _is_given_to_a_frozen(child, house, job_id))
        os.kill(child, signal.SIGKILL)
        house.until_gone(held, timeout=house.lease_ms / 1000 / 2)
        assert house.counter("handed_back_total") == 1
        assert house.counter("reclaimed_total") == 0
        assert shop.alive()


def _is_given_to_a_frozen(child: int, house: House, job_id: str) -> bool:
    """Freeze it and schedule a job. If it was not waiting just then, it is thawed and runs it."""
    os.kill(child, signal.SIGSTOP)
    house.schedule("good", job_id)
    try:
        house.until(job_id, State.RESERVED, timeout=2.0)
    except AssertionError:
        os.kill(child, signal.SIGCONT)
        house.until_gone(job_id)
        return False
    return True


@pytest.mark.timed
def test_a_frozen_child_keeps_no_other_from_its_jobs_and_thaws_without_harm(hasty: House) -> None:
    house = hasty
    house.schedule("held", "slow")
    with house.open(processes=2):
        pid = house.until_started("slow")
        os.kill(pid, signal.SIGSTOP)
        ids = [f"g{n}" for n in range(20)]
        house.schedule("good", *ids)
        time.sleep(house.lease_ms / 1000 * 1.2)  # the supervisor renews for it: nothing is taken back
        assert house.state("slow") is State.RESERVED
        os.kill(pid, signal.SIGCONT)
        house.let_go()
        house.until_gone("slow", *ids)
    assert len(house.starts("slow")) == 1


@pytest.mark.timed
def test_many_killers_are_done_with_quickly(house: House) -> None:
    killers = [f"k{n}" for n in range(5)]
    house.schedule("kill_self", *killers)
    with house.open():
        for job_id in killers:
            house.until(job_id, State.FAILED, timeout=15)
        house.schedule("good", "g1")
        wait_fairly(lambda: house.state("g1") is State.ABSENT, within=2, what="the next one is done")
    assert [len(house.starts(job_id)) for job_id in killers] == [4] * 5


def test_a_child_that_cannot_even_begin_is_replaced_ever_more_slowly(house: House) -> None:
    with house.open(mover=False) as shop:
        wait_until(lambda: len(house.processes()) == 2, what="there is a child")
        for times in range(1, 6):
            (child,) = [pid for pid in house.processes() if pid != shop.pid]
            os.kill(child, signal.SIGKILL)
            wait_until(partial(_deaths_are, shop, times), what="the death is seen")
            wait_until(lambda: len(house.processes()) == 2, what="there is another one")
    pauses = [float(line.split("starts in ")[1].split()[0]) for line in shop.said().splitlines() if "starts in" in line]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]


def _deaths_are(shop: Shop, times: int) -> bool:
    return shop.said().count("another one starts") == times
