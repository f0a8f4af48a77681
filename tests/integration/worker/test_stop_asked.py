"""cancel --running: a job that somebody has taken is asked to stop."""

from __future__ import annotations

import asyncio
import time

import pytest

from delayq.core.signals import Fail, Snooze
from delayq.core.states import Answer, State
from delayq.drivers.base import Claim
from delayq.jobs.context import JobContext
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

pytestmark = pytest.mark.station(lease_ms=600)


def ask(station: Station, job_id: str) -> None:
    assert station.client.cancel(job_id, queue=QUEUE, running=True) is Answer.RUNNING


def test_an_async_handler_is_cancelled_and_not_tried_again(station: Station) -> None:
    cleaned = station.tape()
    entered = station.flag()

    async def slow() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("cleaned up")

    station.handles("slow", slow)
    station.client.schedule("slow", id="o1")
    with station.working():
        assert entered.wait(50)
        ask(station, "o1")
        station.until("o1", State.ABSENT)
    assert cleaned == ["cleaned up"]
    assert station.ends("o1") == ["stopped"]


def test_a_sync_handler_may_look_and_leave(station: Station) -> None:
    entered = station.flag()

    def slow(context: JobContext) -> None:
        entered.set()
        end = time.monotonic() + 50
        while not context.stop_asked():
            assert time.monotonic() < end
            time.sleep(0.01)

    station.handles("slow", slow)
    station.client.schedule("slow", id="o1")
    with station.working():
        assert entered.wait(50)
        ask(station, "o1")
        station.until("o1", State.ABSENT)
    assert station.ends("o1") == ["done"], "it returned, so it is done"


@pytest.mark.parametrize(
    ("error", "state"), [(ValueError("x"), State.ABSENT), (Snooze("1h"), State.ABSENT), (Fail("x"), State.FAILED)]
)
def test_a_job_that_was_asked_to_stop_is_not_tried_again(station: Station, error: Exception, state: State) -> None:
    """Also one that ends before the next renewal could tell its worker: what is on record is read with the outcome."""

    def close() -> None:
        ask(station, "o1")
        raise error

    station.handles("close", close)
    station.client.schedule("close", id="o1")
    station.drain()
    assert station.state("o1") is state
    assert station.connector.commands().hlen(station.keys().of("cancel")) == 0


def test_what_has_not_started_will_not(station: Station) -> None:
    """Delivered, held by a worker behind a slow job, and asked to stop before its turn."""
    ran = station.tape()

    def note(n: int) -> None:
        ran.append(n)
        if n == 300:
            answers = [station.client.cancel(f"j{other}", queue=QUEUE, running=True) for other in range(301, 500)]
            assert Answer.RUNNING in answers, "some were delivered already"
            wait_until(lambda: station.client.stats(QUEUE)[0].reserved == 1, what="it is the only one held")

    station.handles("note", note)
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": f"j{n}"} for n in range(500)])
    station.drain()
    assert sorted(ran) == list(range(301))  # a slow machine hands some back, which run later
    assert station.client.stats(QUEUE)[0].failed == 0


@pytest.mark.parametrize("how", ["hand_back", "by its supervisor", "recover", "reclaim"])
def test_delivered_again_it_is_still_asked_to_stop(station: Station, how: str) -> None:
    ran = station.tape()
    station.handles("close", lambda: ran.append("ran"))
    station.client.schedule("close", id="o1")
    first, steward = station.driver.consumer("dq:gone:1:a", [QUEUE]), station.driver.steward([QUEUE])
    [delivery] = first.fetch([], 1).deliveries
    claim = Claim(QUEUE, delivery.id, delivery.entry)
    ask(station, "o1")
    match how:
        case "hand_back":
            first.hand_back([delivery])
        case "by its supervisor":
            steward.hand_back([claim])
        case "recover":
            steward.recover([claim])
        case "reclaim":
            wait_until(lambda: station.driver.reclaim(QUEUE).reclaimed == 1, what="its lease is over")
    assert station.state("o1") is State.READY
    station.drain()
    assert ran == []
    assert (station.ends("o1"), station.state("o1")) == (["stopped"], State.ABSENT)
    assert station.connector.commands().hlen(station.keys().of("cancel")) == 0


def test_an_ask_for_one_job_leaves_the_next_alone(station: Station) -> None:
    ends = station.tape()

    async def slow(context: JobContext) -> None:
        await asyncio.sleep(60 if context.id == "o1" else 0.7)
        ends.append(context.id)
        assert not context.stop_asked()

    station.handles("slow", slow)
    station.client.schedule("slow", id="o1")
    with station.working():
        wait_until(lambda: station.state("o1") is State.RESERVED, what="o1 runs")
        ask(station, "o1")
        station.until("o1", State.ABSENT)
        station.client.schedule("slow", id="o2")
        station.until("o2", State.ABSENT)
    assert ends == ["o2"]
