"""A job whose worker vanished starts again in time, whatever else its next worker does, and stops nothing else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.machine import fair_clock
from tests.support.servers import connect
from tests.support.supervision import QUEUE, House, Shop
from tests.support.waiting import wait_until

LEASE_MS, TICK_MS, SPARE_MS = 2_000, 700, 2_000
CREWS = [{"threads": 8}, {"asynchronous": True}]


@pytest.fixture
def house(redis_url: str, tmp_path: Path) -> Iterator[House]:
    made = House(redis_url, tmp_path, lease_ms=LEASE_MS)
    yield made
    made.close()


def _kind(config: dict[str, Any]) -> str:
    return "async_" if "asynchronous" in config else ""


@contextmanager
def _after_a_vanish(house: House, ids: list[str], config: dict[str, Any], **data: Any) -> Iterator[Shop]:
    """A worker; another one has vanished as a whole while it ran these jobs."""
    with house.open(threads=len(ids), asynchronous="asynchronous" in config) as victim:
        house.schedule(f"{_kind(config)}held", *ids, **data)
        wait_until(lambda: len(house.rows("start")) == len(ids), what="the victim runs them all")
        before = len(house.processes())
        with house.open(**config) as survivor:
            wait_until(lambda: len(house.processes()) == before + 3, what="the survivor is there")
            victim.signal(signal.SIGKILL)
            victim.ended()
            yield survivor


def _suspect(house: House, job_id: str, name: str, times: int, **data: Any) -> None:
    """A job that is due now and whose worker has vanished that often."""
    with connect(house.url) as plain:
        plain.hset(f"delayq:{{{QUEUE}}}:recoveries", job_id, times)
    house.client.schedule(name, data, id=job_id, delay="1s")


def _calls(house: House, command: str) -> int:
    with connect(house.url) as plain:
        return int(plain.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


@pytest.mark.timed
@pytest.mark.parametrize("config", CREWS)
def test_a_recovered_job_starts_in_time_on_a_worker_that_is_never_idle(house: House, config: dict[str, Any]) -> None:
    with _after_a_vanish(house, ["lost0", "lost1"], config) as survivor:
        began = fair_clock()
        house.schedule(f"{_kind(config)}good", *[f"busy{n}" for n in range(3)], seconds=15.0)
        wait_until(
            lambda: all(len(house.starts(job_id)) == 2 for job_id in ("lost0", "lost1")),
            timeout=14,
            what="both have begun again",
        )
        took_ms = (fair_clock() - began) * 1000
        assert not house.rows("end"), "the others run all the while"
        assert took_ms <= LEASE_MS + TICK_MS + SPARE_MS
        assert survivor.alive()
        assert house.counter("handed_back_total") == 0


@pytest.mark.timed
def test_thirty_recovered_jobs_start_in_time_beside_steady_work(house: House) -> None:
    ids = [f"lost{n}" for n in range(30)]
    with _after_a_vanish(house, ids, {"threads": 8}, seconds=0.2):
        house.let_go()
        began = fair_clock()
        house.schedule("good", *[f"busy{n}" for n in range(3)], seconds=15.0)
        wait_until(
            lambda: all(len(house.starts(job_id)) == 2 for job_id in ids), timeout=14, what="all have begun again"
        )
        assert (fair_clock() - began) * 1000 <= LEASE_MS + TICK_MS + SPARE_MS
        assert not house.rows("end", "busy0")


@pytest.mark.timed
@pytest.mark.parametrize("config", CREWS)
def test_a_suspect_has_a_process_of_its_own_and_stops_nobody(house: House, config: dict[str, Any]) -> None:
    kind = _kind(config)
    house.schedule(f"{kind}held", "busy0", "busy1")
    with house.open(**config):
        here = house.until_started("busy1")
        before = house.counter("handed_back_total")
        _suspect(house, "suspect", f"{kind}held", 2)
        there = house.until_started("suspect", timeout=5)
        assert there != here
        late_ms = []
        for n in range(20):
            began = time.monotonic()
            house.schedule(f"{kind}good", f"fresh{n}")
            house.until_started(f"fresh{n}")
            late_ms.append((float(house.rows("start", f"fresh{n}")[0][3]) - began) * 1000)
        assert median(late_ms) < 250
        assert {pid for n in range(20) for pid in house.starts(f"fresh{n}")} == {here}
        assert not house.rows("end", "suspect")
        house.let_go()
        house.until_gone("suspect", "busy0", "busy1")
        assert house.counter("handed_back_total") == before
        assert house.counter("reclaimed_total") == 0
        wait_until(lambda: there not in house.processes(), what="its process has left")


def test_waiting_for_a_process_costs_no_write_of_the_payload(house: House) -> None:
    """The first suspect may be the last start of it, so the second one waits for its end."""
    house.schedule("held", "busy")
    with house.open(threads=4):
        house.until_started("busy")
        _suspect(house, "first", "held_with", 3)
        house.until_started("first")
        _suspect(house, "second", "held_with", 3, load="x" * 250_000)
        house.until("second", State.RESERVED)
        adds, acks = _calls(house, "xadd"), _calls(house, "xack")
        time.sleep(1.5)
        assert (_calls(house, "xadd"), _calls(house, "xack")) == (adds, acks)
        assert house.starts("second") == []
        house.let_go()
        house.until_gone("first", "second", "busy")
    assert len(house.starts("second")) == 1


def test_several_suspects_run_at_once_unless_the_next_vanish_fails_one(house: House) -> None:
    ids = [f"s{n}" for n in range(3)]
    with house.open(threads=4):
        for job_id in ids:
            _suspect(house, job_id, "held", 2)
        pids = {house.until_started(job_id) for job_id in ids}
        assert len(pids) == 3
        _suspect(house, "last", "held", 3)
        house.until("last", State.RESERVED)
        assert house.starts("last") == []
        house.let_go()
        house.until_gone(*ids, "last")


@pytest.mark.parametrize("config", CREWS)
def test_a_suspect_that_kills_its_process_hurts_no_other(house: House, config: dict[str, Any]) -> None:
    kind = _kind(config)
    house.schedule(f"{kind}held", "busy")
    with house.open(**config) as shop:
        house.until_started("busy")
        _suspect(house, "killer", "kill_self", 2)
        house.until("killer", State.FAILED)
        assert len(house.starts("killer")) == 2
        house.let_go()
        house.until_gone("busy")
        assert shop.alive()
    assert len(house.starts("busy")) == 1
    assert house.job("killer").recoveries == 4


def test_a_suspect_is_ended_at_its_timeout_and_no_other_is(house: House) -> None:
    house.schedule("held", "busy")
    with house.open(threads=4, kill_after_ms=400, tries=1):
        house.until_started("busy")
        _suspect(house, "deaf", "hold_the_lock", 2, seconds=30)
        house.until_started("deaf")
        house.client.cancel("deaf", running=True)
        house.until_gone("deaf", timeout=10)
        house.let_go()
        house.until_gone("busy")
    assert len(house.starts("busy")) == 1


def test_a_stop_gives_back_uncounted_what_waits_for_a_process(house: House) -> None:
    house.schedule("held", "busy")
    with house.open(threads=4, grace_ms=2_000) as shop:
        house.until_started("busy")
        _suspect(house, "first", "held", 3)
        house.until_started("first")
        _suspect(house, "second", "held", 3)
        house.until("second", State.RESERVED)
        shop.signal(signal.SIGTERM)
        shop.ended()
    assert [house.state(job_id) for job_id in ("busy", "first", "second")] == [State.READY] * 3
    assert [house.job(job_id).recoveries for job_id in ("busy", "first", "second")] == [0, 3, 3]
    house.let_go()
    with house.open(stop_when_empty=True, threads=4) as shop:
        assert shop.ended() == 0
    assert {len(house.rows("end", job_id)) for job_id in ("busy", "first", "second")} == {1}


def test_a_quiet_worker_gives_back_what_waits_for_a_process(house: House) -> None:
    with house.open(threads=4) as shop:
        _suspect(house, "first", "held", 3)
        house.until_started("first")
        _suspect(house, "second", "held", 3)
        house.until("second", State.RESERVED)
        shop.signal(signal.SIGUSR2)
        house.until("second", State.READY)
        house.let_go()
        house.until_gone("first")
        shop.signal(signal.SIGCONT)
        house.until_gone("second")
    assert house.counter("reclaimed_total") == 0


def test_limits_in_jobs_count_suspects_too(house: House) -> None:
    for n in range(3):
        _suspect(house, f"s{n}", "good", 2)
    house.client.schedule_many([{"name": "good", "id": f"g{n}", "delay": "2s"} for n in range(3)])
    with house.open(threads=4, max_jobs=5) as shop:
        assert shop.ended() == 0
        assert shop.reason() == "max_jobs"
    assert len(house.rows("end")) == 5


def test_once_runs_a_suspect_and_leaves(house: House) -> None:
    _suspect(house, "s", "good", 2)
    time.sleep(1.1)
    house.schedule("good", "g")
    with house.open(threads=4, once=True) as shop:
        assert shop.ended() == 0
    assert len(house.rows("end")) == 1


def test_a_worker_that_dies_takes_the_suspects_process_along(house: House) -> None:
    with house.open(threads=4) as shop:
        _suspect(house, "s", "held", 2)
        house.until_started("s")
        os.kill(shop.pid, signal.SIGKILL)
        wait_until(lambda: not house.processes(), what="all processes are gone")
    house.let_go()
    with house.open(threads=4):
        house.until_gone("s")
    assert len(house.starts("s")) == 2
