"""When a worker stops, and in what order it leaves things."""

from __future__ import annotations

import time

import pytest

from delayq.core.events import WorkerStarting, WorkerStopping
from delayq.core.states import State
from delayq.worker.options import StopReason
from tests.support.machine import fair_clock
from tests.support.snapshot import word
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

HOUR = "1h"


def nothing() -> None: ...


def consumers(station: Station, queue: str = QUEUE) -> list[str]:
    client = station.connector.commands()
    if not client.exists(station.keys(queue).stream):
        return []
    return [row["name"].decode() for row in client.xinfo_consumers(station.keys(queue).stream, "delayq")]


# -- once, when empty ------------------------------------------------------------------------------------------------


def test_stop_when_empty_runs_all_that_is_ready_and_leaves_what_is_not_due(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule_many([{"name": "note", "id": f"j{n}"} for n in range(700)])
    station.client.schedule("note", id="later", delay=HOUR)
    assert station.drain() is StopReason.EMPTY
    assert station.client.stats(QUEUE)[0].ready == 0
    assert station.state("later") is State.SCHEDULED


@pytest.mark.parametrize("limit", ["stop_when_empty", "once"])
def test_what_fell_due_is_run_even_if_no_mover_was_there_before(station: Station, limit: str) -> None:
    station.now_ms = 1_800_000_000_000
    station.handles("note", nothing)
    station.client.schedule("note", id="o1", delay="1m")
    station.now_ms += 60_000
    station.run(mover=True, **{limit: True})
    assert station.state("o1") is State.ABSENT


def test_once_runs_one_job_of_many(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule_many([{"name": "note", "id": f"j{n}"} for n in range(5)])
    assert station.run(once=True) is StopReason.ONCE
    stats = station.client.stats(QUEUE)[0]
    assert (stats.ready, stats.reserved) == (4, 0)


@pytest.mark.timed
def test_once_ends_soon_when_there_is_nothing(station: Station) -> None:
    started = fair_clock()
    assert station.run(once=True, mover=True, sleep_ms=1_000) is StopReason.ONCE
    assert fair_clock() - started < 1.2


# -- limits ----------------------------------------------------------------------------------------------------------


def test_max_jobs_hands_back_nothing_because_it_takes_no_more(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule_many([{"name": "note", "id": f"j{n:04}"} for n in range(600)])
    assert station.run(max_jobs=555) is StopReason.MAX_JOBS
    stats = station.client.stats(QUEUE)[0]
    assert (stats.ready, stats.reserved) == (45, 0)
    assert stats.counters.get("handed_back_total", 0) == 0


@pytest.mark.timed
def test_max_time_ends_between_jobs(station: Station) -> None:
    station.handles("note", lambda: time.sleep(0.05))
    station.client.schedule_many([{"name": "note", "id": f"j{n}"} for n in range(50)])
    assert station.run(max_time_ms=1_000) is StopReason.MAX_TIME
    stats = station.client.stats(QUEUE)[0]
    assert stats.reserved == 0
    assert 29 <= stats.ready < 50


def test_memory_ends_with_twelve(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule("note", id="o1")
    reason = station.run(memory_mb=1)
    assert (reason, reason.exit_code) == (StopReason.MEMORY, 12)
    assert station.state("o1") is State.READY


def test_a_rest_between_jobs(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule_many([{"name": "note", "id": f"j{n}"} for n in range(5)])
    started = time.monotonic()
    station.drain(rest_ms=60)
    assert time.monotonic() - started >= 0.3


# -- an interruption -------------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_an_idle_worker_stops_within_its_wait(station: Station) -> None:
    with station.working(mover=True, sleep_ms=1_000) as running:
        wait_until(lambda: consumers(station), what="the worker waits")
        started = fair_clock()
        assert running.stop() is StopReason.INTERRUPTED
        assert fair_clock() - started < 1.3
    assert consumers(station) == [], "it took itself off the list"
    assert station.connector.commands().zcard("delayq:workers") == 0


def test_a_busy_worker_finishes_its_job_and_hands_the_rest_back_uncounted(station: Station) -> None:
    entered, go_on = station.flag(), station.flag()
    ran = station.tape()

    def note(n: int) -> None:
        ran.append(n)
        if n == 300:  # late enough for a large prefetch
            entered.set()
            assert go_on.wait(50)

    station.handles("note", note)
    ids = [f"j{n}" for n in range(500)]
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": ids[n]} for n in range(500)])
    with station.working() as running:
        assert entered.wait(50)
        running.ask()
        wait_until(lambda: "stopping (interrupted)" in station.said(), what="it was told")
        go_on.set()
        assert running.join() is StopReason.INTERRUPTED
    done = list(ran)
    # On a slow machine some may have been handed back before: they stand at the end of the line.
    assert done == sorted(set(done)), "what ran, ran once and in order"
    assert done[-1] == 300
    stats = station.client.stats(QUEUE)[0]
    assert (stats.ready, stats.reserved) == (500 - len(done), 0)
    for n in (301, 499):
        left = station.job(ids[n])
        assert left.envelope is not None
        assert (left.state, left.envelope.attempts, left.recoveries) == (State.READY, 0, 0)
    station.drain()
    assert sorted(ran) == list(range(500)), "and the rest is run by the next worker"


def test_a_listener_hears_why(station: Station) -> None:
    station.drain()
    starting, *_, event = station.events
    assert isinstance(event, WorkerStopping)
    assert starting == WorkerStarting(event.name, (QUEUE,), (), ())
    assert (event.name[:3], event.reason, event.jobs) == ("dq:", "empty", 0)


def test_a_listener_that_raises_costs_nothing(station: Station) -> None:
    station.handles("note", nothing)
    station.client.schedule("note", id="o1")

    def broken(event: object) -> None:
        raise KeyError("no such metric")

    station.listeners.insert(0, broken)
    assert station.drain() is StopReason.EMPTY
    assert station.ends("o1") == ["done"], "and the others hear"
    assert station.state("o1") is State.ABSENT


def test_workers_say_that_they_are_here(station: Station) -> None:
    station.handles("note", nothing)
    with station.working(processes=2):
        wait_until(lambda: station.connector.commands().zcard("delayq:workers") == 2, what="the announcements")
        names = station.connector.commands().zrange("delayq:workers", 0, -1)
        assert [word(name)[:3] for name in names] == ["dq:", "dq:"]
        document = station.connector.commands().get(f"delayq:worker:{word(names[0])}")
        assert document is not None
        assert b'"queues":["orders"]' in document
        assert b'"jobs":["note"]' in document
