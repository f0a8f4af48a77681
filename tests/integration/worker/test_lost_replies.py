"""Replies that get lost between Redis and a worker: every job still runs once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from delayq.core.states import State
from delayq.redis.connect import Waits
from tests.support.proxy import Proxy
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

QUICK = Waits(connect_ms=500, answer_ms=500, budget_ms=2_000, reader_margin_ms=500)


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(Path(urlsplit(redis_url).path)) as made:
        yield made


@pytest.mark.parametrize(("fate", "every", "jobs"), [("cut", 13, 500), ("cut", 23, 1_000), ("swallow", 20, 200)])
def test_every_nth_reply_is_lost_and_all_jobs_run_once(
    station: Station, proxy: Proxy, fate: str, every: int, jobs: int
) -> None:
    """Handlers of a millisecond, so that the work takes many round trips; each loss hits whatever is under way.

    Not oftener: a new connection takes seven replies to its first delivery, and the calls of supervisor and
    watchdog count too.
    """
    runs = station.tally()

    def note(n: int) -> None:
        runs.add(n)
        time.sleep(0.001)

    station.handles("note", note)
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": f"j{n}"} for n in range(jobs)])
    with station.working(proxy.url, QUICK):
        getattr(proxy, fate)(after=every - 1, ever=True)
        wait_until(lambda: len(runs) == jobs, timeout=40, what="all have run")
        proxy.heal()
        station.until_gone([f"j{n}" for n in range(jobs)])
    assert proxy.lost >= 3
    assert set(runs.values()) == {1}
    assert all(fence.resent for fence in station.fences()), "what was fenced had been settled by an earlier try"
    counters = station.client.stats(QUEUE)[0].counters
    assert (counters["acked_total"], counters.get("reclaimed_total", 0)) == (jobs, 0)


@pytest.mark.station(lease_ms=60_000)
def test_deliveries_whose_reply_was_lost_are_replayed_at_once(station: Station, proxy: Proxy) -> None:
    """The lease is a minute, so being run within a third of it means: replayed, and not reclaimed."""
    runs = station.tally()
    station.handles("note", lambda n: runs.add(n))  # noqa: PLW0108  (a handler takes its arguments by name)
    with station.working(proxy.url, QUICK):
        wait_until(lambda: proxy.replies > 8, what="the worker waits for work")
        proxy.swallow(having=b'"name":"note"')
        station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": f"j{n}"} for n in range(50)])
        wait_until(lambda: len(runs) == 50, what="all have run")
        station.until_gone([f"j{n}" for n in range(50)])
    assert proxy.lost == 1, "it carried deliveries"
    assert set(runs.values()) == {1}
    assert station.client.stats(QUEUE)[0].counters.get("reclaimed_total", 0) == 0


def test_an_outcome_is_kept_until_it_can_be_settled(station: Station, proxy: Proxy) -> None:
    runs, go_on = station.tally(), station.flag()

    def note(n: int) -> None:
        runs.add(n)
        assert go_on.wait(50)

    station.handles("note", note)
    station.client.schedule("note", {"n": 1}, id="o1")
    with station.working(proxy.url, QUICK):
        wait_until(lambda: runs, what="it runs")
        proxy.cut(ever=True)  # from now on no reply arrives
        go_on.set()
        before = proxy.connections
        wait_until(lambda: proxy.connections > before + 3, what="the worker tries again and again")
        proxy.heal()
        station.until("o1", State.ABSENT)
    assert runs == {1: 1}
