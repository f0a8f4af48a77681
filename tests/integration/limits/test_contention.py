"""Fifty workers' worth of jobs for seven places: never eight at once, everybody woken in time, no attempt spent.

Nobody comes back by itself within an hour here, so a wake-up that was lost would end in a job that is never run.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from delayq import Concurrency, job
from delayq.core.events import JobEnded
from tests.support.servers import connect
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("manager"), pytest.mark.foreign_keys("test:*")]

PLACES, COUNT, JOB_S = 7, 140, 0.1


class Gauge:
    """Counts in Redis how many run, from inside of the handlers."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def enter(self) -> None:
        pipe = self._client.pipeline(transaction=False)
        pipe.rpush("test:seen", int(self._client.incr("test:running")))
        pipe.rpush("test:began", time.monotonic())
        pipe.execute()

    def leave(self) -> None:
        self._client.decr("test:running")

    def ended(self) -> bool:
        return self._client.llen("test:seen") == COUNT and self._client.get("test:running") == b"0"

    def most(self) -> int:
        return max(int(seen) for seen in self._client.lrange("test:seen", 0, -1))

    def per_second(self) -> float:
        began = sorted(float(at) for at in self._client.lrange("test:began", 0, -1))
        return (COUNT - 1) / (began[-1] - began[0])


def declare_async(gauge: Gauge) -> None:
    @job("api.call", middleware=[Concurrency("api", PLACES, release_after="1h")], tries=1)
    async def call() -> None:
        gauge.enter()
        await asyncio.sleep(JOB_S)
        gauge.leave()


def declare_plain(gauge: Gauge) -> None:
    @job("api.call", middleware=[Concurrency("api", PLACES, release_after="1h")], tries=1)
    def call() -> None:
        gauge.enter()
        time.sleep(JOB_S)
        gauge.leave()


@pytest.mark.parametrize(
    ("declare", "crew"),
    [(declare_async, {"concurrency": 25}), (declare_plain, {"threads": 25})],
    ids=["async", "threads"],
)
def test_seven_places_for_fifty_workers(
    station: Station, declare: Callable[[Gauge], None], crew: dict[str, int], record_property: Callable[..., None]
) -> None:
    with connect(station.url) as client:
        gauge = Gauge(client)
        declare(gauge)
        station.client.schedule_many([{"name": "api.call"} for _ in range(COUNT)])
        with station.working(processes=2, mover=True, **crew):
            wait_until(gauge.ended, timeout=90.0, what="all jobs have run")
        assert gauge.most() == PLACES
        ended = Counter(event.outcome for event in station.events if isinstance(event, JobEnded))
        assert ended["done"] == COUNT
        assert set(ended) == {"done", "snoozed"}
        ideal = PLACES / JOB_S
        record_property(
            "chaos",
            f"limit of {PLACES}, {COUNT} jobs, 50 workers' worth: {gauge.per_second():.1f} jobs/s of {ideal:.0f} "
            f"({gauge.per_second() / ideal:.0%}), at most {gauge.most()} at once, {ended['snoozed']} snoozes",
        )
    [view] = station.client.limits.all()
    assert (view.name, view.places, view.counters["taken_total"]) == ("api", (), COUNT)


def test_one_place_and_jobs_that_only_just_miss_it(station: Station) -> None:
    """The place becomes free while the other job is on its way back to its queue: it must not be forgotten there."""
    ran = station.tape()

    @job("api.call", middleware=[Concurrency("one", 1, release_after="1h")], tries=1)
    async def call() -> None:
        ran.append(1)

    station.client.schedule_many([{"name": "api.call"} for _ in range(60)])
    with station.working(processes=2, concurrency=4, mover=True):
        wait_until(lambda: len(ran) == 60, timeout=60.0, what="all jobs have run")
