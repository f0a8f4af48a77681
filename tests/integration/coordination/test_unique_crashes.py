"""What unique keys must survive: a crowd at the door, a worker killed by force, a year, a pause."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from delayq.core.states import Answer, State
from tests.support.station import Station
from tests.support.supervision import House

KEY = "invoice:42"
YEAR_MS = 365 * 24 * 3_600_000


def test_two_hundred_at_once_are_one_job(station: Station) -> None:
    outcomes: list[tuple[str, str]] = []
    start = threading.Barrier(20)

    def crowd() -> None:
        start.wait()
        for _ in range(10):
            ref = station.client.schedule("act", unique=KEY, delay="1h")
            outcomes.append((str(ref.outcome), ref.id))

    threads = [threading.Thread(target=crowd) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcome for outcome, _ in outcomes) == {"created": 1, "kept": 199}
    assert len({owner for _, owner in outcomes}) == 1
    assert station.client.stats("orders")[0].scheduled == 1


def test_a_killed_worker_keeps_it(redis_url: str, tmp_path: Path) -> None:
    house = House(redis_url, tmp_path)
    try:
        first = house.client.schedule("limited", {"how": "hang"}, id="first", unique=KEY)
        assert first.outcome is Answer.CREATED
        with house.open(more=["tests.support.limited_jobs"]):
            pid = house.until_started("first")
            assert house.client.schedule("good", unique=KEY).id == "first"
            os.kill(pid, signal.SIGKILL)
            while (ref := house.client.schedule("good", unique=KEY, delay="1h")).id == "first":
                time.sleep(0.01)
            assert house.state("first") is State.ABSENT, "until it had ended nobody else was let in"
            assert ref.outcome is Answer.CREATED
        assert len(house.starts("first")) == 2
    finally:
        house.close()


def test_it_outlives_a_year(station: Station) -> None:
    station.now_ms = 1_800_000_000_000
    first = station.client.schedule("act", unique=KEY, delay="365d")
    station.now_ms += YEAR_MS - 1
    station.driver.tidy("orders")
    assert station.client.schedule("act", unique=KEY).id == first.id


def test_it_outlives_a_pause(station: Station) -> None:
    station.handles("act", lambda: None)
    first = station.client.schedule("act", unique=KEY)
    station.client.pause()
    station.drain()
    assert station.client.schedule("act", unique=KEY).id == first.id
    station.client.resume()
    station.drain()
    assert station.client.schedule("act", unique=KEY).outcome is Answer.CREATED
