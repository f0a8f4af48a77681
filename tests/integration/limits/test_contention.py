"""Fifty workers' worth of jobs that want one of seven places: never eight at once, no place idle, no attempt spent."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis

from delayq import Concurrency, dispatch_many, job
from tests.support.servers import connect
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("manager"), pytest.mark.foreign_keys("test:*")]

PLACES = 7
JOB_S = 0.1


class Gauge:
    """Counts in Redis how many run, inside of the handlers."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def enter(self) -> None:
        now = int(self._client.incr("test:running"))
        pipe = self._client.pipeline(transaction=False)
        pipe.rpush("test:seen", now)
        pipe.rpush("test:began", time.monotonic())
        pipe.execute()

    def leave(self) -> None:
        pipe = self._client.pipeline(transaction=False)
        pipe.decr("test:running")
        pipe.rpush("test:left", time.monotonic())
        pipe.execute()


def test_contention(station: Station) -> None:
    with connect(station.url) as client:
        gauge = Gauge(client)

        @job("api.call", middleware=[Concurrency("api", PLACES)], tries=1)
        async def call() -> None:
            gauge.enter()
            await asyncio.sleep(JOB_S)
            gauge.leave()

        count = 140
        dispatch_many([call.job() for _ in range(count)])
        t = time.monotonic()
        with station.working(processes=2, concurrency=25, mover=True):
            wait_until(lambda: client.llen("test:seen") == count, timeout=60.0, what="all")
        took = time.monotonic() - t
        seen = [int(x) for x in client.lrange("test:seen", 0, -1)]
        began = [float(x) for x in client.lrange("test:began", 0, -1)]
        print(
            "max",
            max(seen),
            "rate",
            (count - 1) / (max(began) - min(began)),
            took,
            [s for _, _, s in station._said.lines][-5:],
        )
        left = [float(x) for x in client.lrange("test:left", 0, -1)]
        ev = sorted([(x, 1) for x in began] + [(x, -1) for x in left])
        t0 = ev[0][0]
        n = 0
        prev = t0
        bins = {}
        for at, d in ev:
            b = int((prev - t0) / 0.2)
            bins[b] = bins.get(b, 0) + n * (at - prev)
            n += d
            prev = at
        print({b: round(v / 0.2, 1) for b, v in bins.items()})
        from collections import Counter

        print(
            Counter(station.ends("")) if False else Counter(e.outcome for e in station.events if hasattr(e, "outcome"))
        )
