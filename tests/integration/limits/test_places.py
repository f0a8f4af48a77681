"""`Concurrency` and `WithoutOverlapping` on workers: who holds a place, who is turned away, and what frees it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from delayq import Concurrency, JobLimited, WithoutOverlapping, dispatch, job, listener
from delayq.core.errors import ConfigError, InvalidInput, InvalidName
from delayq.core.limiting import Acquire, Place, Vacate, Who
from delayq.core.states import State
from delayq.drivers.redis_limits import RedisLimits
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Held
from delayq.redis.send import through
from tests.support.around import KINDS, Marks, declare
from tests.support.limited_jobs import LIMIT
from tests.support.station import QUEUE, Station
from tests.support.supervision import House
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


def hold(station: Station, name: str, key: str = "") -> Who:
    """Take the one place in the name of a delivery that a consumer of the test holds."""
    station.client.schedule("held", id="stranger")
    consumer = station.driver.consumer("dq:test:1:a", (QUEUE,))
    [delivery] = consumer.fetch((), 1).deliveries
    who = Who(QUEUE, delivery.id, delivery.entry)
    assert consumer.limits.ask(Acquire(who, Place(name, key, 1))).taken
    return who


def leave(station: Station, who: Who, name: str, key: str = "") -> None:
    assert RedisLimits(station.connector, station.options).ask(Vacate(who, Place(name, key, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_finds_no_place_is_snoozed(station: Station, kind: str) -> None:
    marks: Marks = station.tape()
    who = hold(station, "api")
    job_id = declare(kind, marks, [Concurrency("api", 1)], tries=1)()
    station.drain()
    assert station.ends(job_id) == ["snoozed"]
    job = station.job(job_id)
    assert (job.state, job.attempts, job.failure) == (State.SCHEDULED, 0, None)
    leave(station, who, "api")
    assert station.state(job_id) is State.READY, "whoever gives back a place runs the one who waits for it"
    station.drain()
    assert station.ends(job_id) == ["snoozed", "done"]
    assert marks == ["run"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_ends_the_handler_gives_the_place_back(station: Station, is_async: bool, threads: int) -> None:
    """Returns, fails, and is interrupted by its timeout: each leaves the place to the next one."""

    def plain(how: str) -> None:
        if how == "fail":
            raise ValueError(how)
        time.sleep(60 if how == "hang" else 0)

    async def waiting(how: str) -> None:
        if how == "fail":
            raise ValueError(how)
        await asyncio.sleep(60 if how == "hang" else 0)

    function: Callable[..., object] = waiting if is_async else plain
    limit = Concurrency("api", 1, release_after="1h")
    job("act", middleware=[limit], tries=1, on_timeout="fail")(function)
    if threads == 1 or is_async:
        dispatch("act", {"how": "hang"}, id="hang", timeout="200ms")
    for how in ("fail", "end"):
        dispatch("act", {"how": how}, id=how)
    with station.working(threads=threads, kill_after_ms=3_000):
        station.until("fail", State.FAILED)
        station.until("end", State.ABSENT)
        station.until("hang", State.FAILED, State.ABSENT)
    [view] = station.client.limits.all()
    assert view.places == ()


def test_a_place_is_free_as_soon_as_its_job_has_another_entry(station: Station) -> None:
    """Handed back, taken back, settled by somebody else: the entry is over, and nobody has to clear up."""
    job_id = declare("function", station.tape(), [Concurrency("api", 1)])()
    who = hold(station, "api")
    scope = Scope(station.options, QUEUE)
    assert through(station.connector, deliver.hand_back(scope, [Held(who.id, who.entry)])) == [True]
    [view] = station.client.limits.all()
    assert [holder.live for holder in view.places[0].holders] == [False]
    station.handles("held", lambda: None)
    station.drain()
    assert station.ends(job_id) == ["done"]


@pytest.mark.timed
@pytest.mark.parametrize("how", ["kill", "hang"])
def test_kill_9_of_a_holder_frees_its_place_with_the_lease(redis_url: str, tmp_path: Path, how: str) -> None:
    """A child that is killed in its handler, and a whole worker: nobody gives the place back, and nobody has to."""
    house = House(redis_url, tmp_path, lease_ms=1_000)
    with closing(house):
        house.schedule("limited", "holder", how=how)
        with house.open(more=["tests.support.limited_jobs"]) as shop:
            house.until_started("holder")
            house.schedule("limited", "next")
            if how == "hang":
                wait_until(lambda: house.client.limits.get(LIMIT).places[0].held == 1, what="it holds the place")
                shop.signal(signal.SIGKILL)
                shop.ended()
            else:
                house.until_gone("holder", "next")
        with house.open(more=["tests.support.limited_jobs"]):
            house.until_gone("holder", "next")
        assert len(house.starts("holder")) == 2
        assert len(house.starts("next")) == 1
        assert house.client.limits.get(LIMIT).places == ()


def test_one_at_a_time_for_each_key_unless_shared(station: Station) -> None:
    by_order = WithoutOverlapping(lambda job: job.fields["order"])
    shared = WithoutOverlapping("tax", shared=True)
    seen = station.tape()
    for name in ("act", "other"):
        station.handles(name, lambda order: seen.append(str(order)), middleware=[by_order])
        station.handles(f"{name}.shared", lambda: seen.append("shared"), middleware=[shared])
    who = hold(station, "overlap:act", "7")
    ids = [dispatch("act", {"order": order}).id for order in (7, 8)] + [dispatch("other", {"order": 7}).id]
    station.drain()
    assert [station.ends(job_id) for job_id in ids] == [["snoozed"], ["done"], ["done"]]
    RedisLimits(station.connector, station.options).ask(Acquire(who, Place("overlap", "tax", 1)))
    ids = [dispatch(f"{name}.shared").id for name in ("act", "other")]
    station.drain()
    assert [station.ends(job_id) for job_id in ids] == [["snoozed"], ["snoozed"]]


def test_drop_leaves_the_job_undone_and_release_after_says_when(station: Station) -> None:
    who = hold(station, "api")
    told: list[JobLimited] = station.tape()  # type: ignore[assignment]
    listener(JobLimited)(told.append)
    station.handles("drop", lambda: None, middleware=[Concurrency("api", 1, drop=True)], retention="1h")
    station.handles("later", lambda: None, middleware=[Concurrency("api", 1, release_after="1h")])
    dropped, later = dispatch("drop").id, dispatch("later").id
    station.drain()
    assert station.state(dropped) is State.COMPLETED
    due_ms = station.job(later).due_ms or 0
    assert due_ms > station.client.run(station.client.verbs.server_ms()) + 3_000_000
    assert [(event.id, event.limit, event.delay_ms) for event in told] == [
        (dropped, "api", None), (later, "api", 3_600_000),
    ]  # fmt: skip
    leave(station, who, "api")


def test_a_key_or_a_limit_of_none_does_not_limit(station: Station) -> None:
    hold(station, "api", "k")
    free = [Concurrency("api", 1, key=lambda job: None), Concurrency("api", lambda job: None, key="k")]
    job_ids = [declare("function", station.tape(), free)() for _ in range(2)]
    station.drain()
    assert [station.ends(job_id) for job_id in job_ids] == [["done"], ["done"]]


def test_what_cannot_be_a_limit_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidName, match="cannot name a limit"):
        Concurrency("a b", 1)
    with pytest.raises(ConfigError, match="has 0 places"):
        Concurrency("a", 0)
    with pytest.raises(InvalidInput, match="cannot be the key"):
        WithoutOverlapping("x" * 256)


def test_a_place_is_free_two_leases_after_its_worker_vanished_though_nobody_serves_its_queue(station: Station) -> None:
    """No janitor takes it back; who asks for the place finds that nobody renews it."""
    station.client.queue_set(QUEUE, lease="1s")
    hold(station, "api")
    station.handles("next", lambda: None, middleware=[Concurrency("api", 1, release_after="100ms")])
    station.client.schedule("next", queue="other", id="next")
    with station.working(queues=("other",), mover=True):
        station.until("next", State.ABSENT, queue="other")
    assert set(station.ends("next")[:-1]) == {"snoozed"}
    assert station.ends("next")[-1] == "done"
    assert station.state("stranger") is State.RESERVED, "its own queue will take it back when it has somebody"
