"""Workers on beanstalkd are killed at once, again and again, while jobs run: every job runs, and none is left over.

What was running when its worker was killed runs again; how often that happened is told.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.beanstalkd import Beanstalkd
from tests.support.serving import Site
from tests.support.supervision import Shop, living_with
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

FULL = os.environ.get("DELAYQ_CHAOS", "") == "full"
KILLS = 20 if FULL else 3
JOBS = 2_000 if FULL else 200
PATIENCE_S = 120.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with closing(Beanstalkd()) as server:
        server.start()
        made = Site({"driver": "beanstalkd", "url": f"beanstalkd://{server.address}"}, tmp_path)
        yield made
        made.close()


def test_nothing_is_lost_when_workers_are_killed(site: Site, record_property: Callable[[str, object], None]) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    ids = site.schedule("good", JOBS, seconds=0.01)
    for kill in range(1, KILLS + 1):
        with site.open(processes=2, max_jobs=0) as shop:
            wanted = len(site.times("end")) + chance.randint(1, JOBS // (KILLS + 1))
            wait_until(lambda wanted=wanted: len(site.times("end")) >= wanted, timeout=PATIENCE_S, what=f"{kill}: work")  # type: ignore[misc]
            kill_all(site, shop)
    with site.open(processes=2):
        site.until("end", ids, timeout=PATIENCE_S)
        wait_until(lambda: sum(filter(None, site.broker.depth("default")[:3])) == 0, what="the queue is empty")
    starts = site.times("start")
    again = sum(starts.values()) - JOBS
    record_property("chaos", f"beanstalkd, seed {seed}: {JOBS} jobs, {KILLS} kills, 0 lost, {again} started again")
    assert set(site.times("end")) == set(ids)
    assert again <= KILLS * 2  # two children, one job each


def kill_all(site: Site, shop: Shop) -> None:
    """The supervisor and its children, all at once, as a machine that loses its power."""
    for pid in [shop.pid, *living_with(site.ledger)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    shop.ended()
    wait_until(lambda: not living_with(site.ledger), what="nobody is left")
