"""Why has this job not run? Because of a limit: the page of the job names it, and who is in its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from delayq import Concurrency, RateLimit, RateLimited, ThrottlesExceptions, WithoutOverlapping
from delayq.core.limit_names import limit_of_job
from delayq.core.limiting import Acquire, Place, Who
from delayq.drivers.redis_limits import RedisLimits
from tests.support.pages import read
from tests.support.station import QUEUE, Station
from tests.support.web import web

pytestmark = pytest.mark.usefixtures("manager")


def run() -> None:
    return


def broken() -> None:
    raise ConnectionError("the bank is away")


def said(station: Station, *job_ids: str) -> list[str]:
    """What the page of each job says."""

    async def pages() -> list[str]:
        async with web(station.url) as client:
            return [(await read(client, f"/job?queue={QUEUE}&id={job_id}")).text for job_id in job_ids]

    return asyncio.run(pages())


def test_the_page_names_what_is_full_and_who_fills_it(station: Station) -> None:
    schedule: Callable[..., object] = station.client.schedule
    station.handles("api.call", run, middleware=[Concurrency("api", 1, key="acme")])
    station.handles("report", run, middleware=[WithoutOverlapping("42")])
    station.handles("sms", run, middleware=[RateLimited("sms", RateLimit.per_hour(1))])
    station.handles("pay", broken, middleware=[ThrottlesExceptions(1, "10m", key="bank")])
    schedule("held", id="stranger")
    consumer = station.driver.consumer("dq:test:1:a", (QUEUE,))
    [delivery] = consumer.fetch((), 1).deliveries
    who, limits = Who(QUEUE, delivery.id, delivery.entry), RedisLimits(station.connector, station.options)
    for place in (Place("api", "acme", 1), Place(limit_of_job("overlap", "report"), "42", 1)):
        assert limits.ask(Acquire(who, place)).taken
    ids = {"call": "api.call", "once": "report", "sms-1": "sms", "sms-2": "sms", "pay-1": "pay", "pay-2": "pay"}
    for job_id, name in ids.items():
        schedule(name, id=job_id)
    station.drain()
    call, once, sms, pay = said(station, "call", "once", "sms-2", "pay-2")
    assert "for a place of the limit api (acme): 1 of 1 taken, by orders/stranger" in call
    assert "It runs as soon as a place is given back. delayq limit show api" in call
    assert "for a place of the limit overlap:report (42): 1 of 1 taken, by orders/stranger" in once
    assert "The rate limit sms turned it away; its turn is in" in sms
    assert "The circuit throttle:pay (bank) is open after 1 failure, for another" in pay
    for text in (call, once, sms, pay):
        assert text.count(" the limit ") + text.count("The rate limit") + text.count("The circuit") == 1
