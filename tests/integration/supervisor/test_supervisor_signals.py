"""Signals: a worker leaves within its grace, gives back what it held, uncounted, and leaves nobody behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.core.states import State
from tests.support.servers import LocalServer, OwnServer
from tests.support.supervision import House
from tests.support.waiting import wait_until

GRACE_S = 1.5
TERM, INT, QUIT = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT
SENT = {"TERM": (TERM,), "TERM twice": (TERM, TERM), "INT": (INT,)}


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    return own_server()


@pytest.fixture
def home(server: LocalServer, tmp_path: Path) -> Iterator[House]:
    made = House(server.url, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("sent", list(SENT))
@pytest.mark.parametrize("scene", ["idle", "busy", "stopped", "dead"])
def test_it_leaves_within_its_grace(home: House, server: LocalServer, scene: str, sent: str) -> None:
    home.schedule("good", "g1", "long", seconds=0.01)
    home.until("long", State.READY)
    with home.open(processes=2, grace_ms=int(GRACE_S * 1000)) as shop:
        home.until_gone("g1", "long")
        if scene == "busy":
            home.schedule("deaf", "held", seconds=30)
            home.until_started("held")
        if scene == "stopped":
            server.stop()
        if scene == "dead":
            server.kill()
        try:
            for number in SENT[sent]:
                shop.signal(number)
                wait_until(lambda: "stopping (interrupted)" in shop.said() or not shop.alive(), what="it has heard")
            code = shop.ended(GRACE_S + 5)
        finally:
            if scene == "stopped":
                server.cont()
        assert shop.took_s < GRACE_S + 1.0
        assert code == (130 if sent == "TERM twice" and scene == "busy" else 0)
        assert home.processes() == []
    if scene == "busy":
        assert home.job("held").recoveries == 0
        with home.open():
            home.until_started("held", 2, timeout=4)
        held = home.job("held")
        assert held.envelope is not None
        assert (held.envelope.attempts, held.recoveries) == (0, 0)


def test_what_runs_may_end_within_the_grace_and_the_rest_is_handed_back(house: House) -> None:
    house.schedule("good", "running", seconds=1.0)
    with house.open(grace_ms=10_000) as shop:
        house.until_started("running")
        house.schedule("good", *[f"g{n}" for n in range(10)])
        shop.signal(TERM)
        assert shop.ended() == 0
    assert shop.reason() == "interrupted"
    assert len(house.rows("end", "running")) == 1
    assert house.state("running") is State.ABSENT
    [stats] = house.client.stats("default")
    assert (stats.ready, stats.reserved) == (10, 0)


def test_a_second_signal_does_not_wait(house: House) -> None:
    house.schedule("good", "running", seconds=30)
    with house.open(grace_ms=60_000) as shop:
        house.until_started("running")
        shop.signal(TERM)
        wait_until(lambda: "stopping (interrupted)" in shop.said(), what="it has heard the first")
        shop.signal(INT)
        assert shop.ended() == 130
        assert shop.took_s < 1.5
    assert shop.reason() == "aborted"
    assert (house.state("running"), house.job("running").recoveries) == (State.READY, 0)


def test_pause_and_go_on(house: House) -> None:
    with house.open(processes=2) as shop:
        house.schedule("good", "g1")
        house.until_gone("g1")
        shop.signal(signal.SIGUSR2)
        ids = [f"p{n}" for n in range(5)]
        # Whatever a blocked reader still got is handed back; then nobody takes anything.
        wait_until(lambda: house.client.stats("default")[0].reserved == 0, what="nothing is held")
        house.schedule("good", *ids)
        wait_until(lambda: house.client.stats("default")[0].ready == 5, what="all wait")
        assert [house.starts(job_id) for job_id in ids] == [[]] * 5
        shop.signal(signal.SIGCONT)
        house.until_gone(*ids)
        shop.signal(TERM)
        assert shop.ended() == 0


def test_a_dump_says_what_runs_where(house: House) -> None:
    house.schedule("hold_the_lock", "stuck", seconds=3)
    with house.open(processes=2) as shop:
        pid = house.until_started("stuck")
        ((_, _, _, began),) = house.rows("start", "stuck")
        # One dump alone: the signal for the stacks also ends the call that holds the lock.
        wait_until(lambda: time.monotonic() > float(began) + 1.0, what="the lock has been held for a second")
        shop.signal(signal.SIGTTIN)
        wait_until(lambda: "in hold_the_lock" in shop.said(), what="the stacks are there")
        said = shop.said()
    assert f"process {pid}: working, holds 1, runs 1" in said
    assert "its interpreter has been held for" in said
    assert "default/stuck for 1." in said


@pytest.mark.parametrize("scene", ["idle", "busy"])
def test_as_process_1_it_reaps_and_leaves(house: House, scene: str) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-pf", "--mount-proc", "true"], check=False).returncode != 0:
        pytest.skip("this machine lets nobody make a process namespace")
    house.schedule("orphan", "o1")
    with house.open(before=[unshare, "-pf", "--mount-proc", "--kill-child"], processes=2, grace_ms=1_000) as shop:
        house.until_gone("o1")
        wait_until(lambda: house.rows("gone"), what="the orphan has ended")
        wait_until(lambda: not _zombies(shop.pid), what="the orphan was waited for")
        if scene == "busy":
            house.schedule("deaf", "held", seconds=30)
            house.until_started("held")
        (first,) = _children(shop.pid)
        os.kill(first, TERM)
        assert shop.ended() == 0
        assert shop.took_s < 2.0
    if scene == "busy":
        assert (house.state("held"), house.job("held").recoveries) == (State.READY, 0)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _zombies(pid: int) -> list[int]:
    """Below a process, those that ended and nobody waited for."""
    found: list[int] = []
    for child in _children(pid):
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        found += [child] if state == "Z" else _zombies(child)
    return found
