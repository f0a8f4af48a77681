"""Redis stands still, or dies and comes back: outcomes are kept, leases too, and nothing runs twice for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import LocalServer, OwnServer
from tests.support.supervision import House
from tests.support.waiting import wait_until


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    """It writes down what it acknowledges before it says so."""
    return own_server(persistent=True, options={"appendfsync": "always"})


@pytest.fixture
def home(server: LocalServer, tmp_path: Path) -> Iterator[House]:
    made = House(server.url, tmp_path, lease_ms=10_000)
    yield made
    made.close()


@pytest.mark.parametrize("config", [{"processes": 2}, {"processes": 1, "threads": 3}])
def test_redis_stands_still_while_jobs_run(home: House, server: LocalServer, config: dict[str, int]) -> None:
    ids = [f"g{n}" for n in range(40)]
    home.schedule("good", *ids, seconds=0.05)
    with home.open(processes=config["processes"], threads=config.get("threads", 1)) as shop:
        home.until_started("g3")
        server.stop()
        before = len(home.rows("end"))
        wait_until(lambda: "cannot be reached" in shop.said() or "no answer" in shop.said(), what="it is seen")
        server.cont()
        home.until_gone(*ids, timeout=30)
        assert shop.alive()
        assert len(home.rows("end")) > before
    assert [len(home.starts(job_id)) for job_id in ids] == [1] * 40
    assert home.counter("reclaimed_total") == 0


def test_redis_dies_and_comes_back(home: House, server: LocalServer) -> None:
    ids = [f"g{n}" for n in range(40)]
    home.schedule("good", *ids, seconds=0.05)
    with home.open(processes=2) as shop:
        home.until_started("g3")
        server.kill()
        wait_until(lambda: "cannot be reached" in shop.said(), what="it is seen")
        server.start()
        home.until_gone(*ids, timeout=30)
        home.schedule("good", "after")
        home.until_gone("after")
        assert shop.alive()
    assert [job_id for job_id in ids if len(home.starts(job_id)) != 1] == []


def test_a_worker_waits_for_a_redis_that_is_not_there_yet(home: House, server: LocalServer) -> None:
    server.shutdown()
    with home.open() as shop:
        wait_until(lambda: "waiting to start" in shop.said(), what="it says so")
        server.start()
        home.schedule("good", "g1")
        home.until_gone("g1")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0


@pytest.mark.timed
def test_a_worker_that_waits_to_start_can_be_stopped(home: House, server: LocalServer) -> None:
    server.shutdown()
    with home.open() as shop:
        wait_until(lambda: "waiting to start" in shop.said(), what="it says so")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
        assert shop.took_s < 2.0


def test_a_child_dies_while_redis_is_away(home: House, server: LocalServer) -> None:
    """What it had finished is settled, and what ran is taken back, once somebody can be told."""
    home.schedule("result", "done", size=5)
    home.schedule("good", "long", seconds=30)
    with home.open() as shop:
        pid = home.until_started("long")
        wait_until(lambda: home.job("done").state == "completed", what="the first one is settled")
        server.stop()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "another one starts" in shop.said(), what="the death is seen")
        server.cont()
        home.until_started("long", 2)
        assert home.job("long").recoveries == 1
