"""Redis dies, hangs, forgets, fills up. Nothing is lost, no attempt is spent, and work goes on by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from delayq.core.errors import BackendError, BackendFull, BackendUnavailable, OutcomeUnknown
from delayq.core.states import State
from delayq.jobs.context import JobContext
from tests.integration.worker.conftest import MakeStation
from tests.support.machine import fair_clock, wait_fairly
from tests.support.rule_one import broken
from tests.support.servers import LocalServer, OwnServer
from tests.support.station import QUEUE, Station
from tests.support.tape import Tally, Tape
from tests.support.waiting import wait_until

JOBS = 600


class Load:
    """Handlers that count, and a producer that schedules with its own ids until it was told yes for each."""

    def __init__(self, station: Station, jobs: int = JOBS) -> None:
        self.station = station
        self.ids = [f"j{n}" for n in range(jobs)]
        self.runs = station.tally()
        self.attempts = station.tally()
        self.errors: list[BackendError] = []
        self._thread = threading.Thread(target=self._produce, name="test-producer", daemon=True)
        station.handles("note", self._note)

    def _note(self, context: JobContext) -> None:
        self.runs.add(context.id)
        self.attempts.add(context.attempt)
        time.sleep(0.001)

    def _produce(self) -> None:
        for job_id in self.ids:
            while True:
                try:
                    self.station.client.schedule("note", id=job_id, delay="20ms")
                    break
                except BackendError as error:
                    self.errors.append(error)
            time.sleep(0.001)

    @contextmanager
    def produced(self) -> Iterator[None]:
        """Inside, the producer is at work; afterwards it has been told yes for every job."""
        self._thread.start()
        yield
        self._thread.join(60)
        assert not self._thread.is_alive()

    def all_ran(self, timeout: float = 30) -> None:
        wait_until(lambda: all(self.runs[job_id] for job_id in self.ids), timeout=timeout, what="all jobs have run")
        self.station.until_gone(self.ids)


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    """One that writes down what it acknowledges before it says so."""
    return own_server(persistent=True, options={"appendfsync": "always"})


def has(counter: Tally[str], enough: int) -> bool:
    return len(counter) >= enough


def refusals(client: Any) -> int:
    """How many commands the server has refused for a key of the wrong type."""
    return sum(row["count"] for name, row in client.info("errorstats").items() if "WRONGTYPE" in name)


def more_refusals(client: Any, seen: int) -> bool:
    return refusals(client) > seen


def has_all(ran: Tape[int], enough: int) -> bool:
    return len(ran) >= enough


def sound(station: Station) -> None:
    assert broken(station.connector.commands(), station.keys()) == []


def test_redis_is_killed_and_restarted_under_load(server: LocalServer, stations: MakeStation) -> None:
    station = stations(server.url)
    load = Load(station)
    with station.working(mover=True, tidy_every_ms=500), load.produced():
        for _ in range(3):
            enough = len(load.runs) + 50
            wait_until(partial(has, load.runs, enough), timeout=30, what="work goes on")
            server.restart()
    with station.working(mover=True, tidy_every_ms=500):
        load.all_ran()
    assert set(load.attempts) == {1}, "an outage costs no attempt"
    repeated = [job for job, times in load.runs.items() if times > 1]
    assert repeated == [], "its own deliveries were replayed, what it had finished was settled"
    sound(station)


@pytest.mark.timed
def test_a_hanging_redis_fails_producers_in_time_and_takes_no_work_away(
    server: LocalServer, stations: MakeStation
) -> None:
    """Frozen for three leases: no live work is reclaimed, producers hear within five seconds, all resumes."""
    station = stations(server.url, lease_ms=1_000)
    entered, go_on = station.flag(), station.flag()
    starts = station.tape()

    def slow(context: JobContext) -> None:
        starts.append(context.token)
        entered.set()
        assert go_on.wait(50)

    station.handles("slow", slow)
    load = Load(station, jobs=20)
    station.client.schedule("slow", id="slow")
    with station.working(mover=True, tidy_every_ms=200):
        assert entered.wait(50)
        server.stop()
        try:
            begun = fair_clock()
            with pytest.raises((BackendUnavailable, OutcomeUnknown)):
                station.client.schedule("note", id="unheard")
            assert fair_clock() - begun <= 5.0
        finally:
            server.cont()
        with load.produced():
            pass
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 2.0, what="two leases of ticks pass")
        go_on.set()
        load.all_ran()
        station.until_gone(["slow", "unheard"])
    assert len(starts) == 1, "the job under way was not taken back"
    assert station.fences() == [] or all(fence.resent for fence in station.fences())
    assert station.client.stats(QUEUE)[0].counters.get("reclaimed_total", 0) == 0
    sound(station)


def test_all_is_flushed_under_load(server: LocalServer, stations: MakeStation) -> None:
    station = stations(server.url)
    ran = station.tally()
    station.handles("note", lambda context_id: ran.add(context_id))  # noqa: PLW0108  (arguments come by name)
    with station.working(mover=True, tidy_every_ms=500):
        for round_number in range(4):
            job_id = f"o{round_number}"
            station.client.schedule("note", {"context_id": job_id}, id=job_id, delay="10ms")
            wait_until(partial(ran.__getitem__, job_id), what="it consumes")
            station.connector.commands().flushall()
        station.client.schedule_many([{"name": "note", "data": {"context_id": f"j{n}"}} for n in range(200)])
        wait_until(lambda: len(ran) == 204, what="all later ones run")
    assert set(ran.values()) == {1}
    assert len(station.said().splitlines()) < 60, "said, and not shouted"
    sound(station)


def test_scripts_are_forgotten_all_the_time(station: Station) -> None:
    stop = threading.Event()

    def rain() -> None:
        while not stop.wait(0.005):
            station.connector.commands().script_flush()

    load = Load(station, jobs=1_000)
    thread = threading.Thread(target=rain, daemon=True)
    thread.start()
    try:
        with station.working(mover=True), load.produced():
            pass
        with station.working(mover=True):
            load.all_ran()
    finally:
        stop.set()
        thread.join()
    assert load.errors == []
    assert set(load.runs.values()) == {1}


KEYS = [
    "scheduled",
    "jobs",
    "stream",
    "entries",
    "recoveries",
    "failed",
    "errors",
    "completed",
    "cancel",
    "meta",
    "locks",
]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_the_wrong_type_is_reported_loses_nothing_and_heals(station: Station, name: str) -> None:
    """Somebody else's string stands where one of our keys was; the real one is put back later."""
    client, key = station.connector.commands(), station.keys().of(name)
    load = Load(station, jobs=30)
    ran_elsewhere = station.tape()
    station.handles("elsewhere", lambda: ran_elsewhere.append(1))
    station.client.schedule_many([{"name": "note", "id": job_id} for job_id in load.ids])
    if client.exists(key):
        client.rename(key, "aside")
    client.set(key, "not yours")
    with station.working(queues=(QUEUE, "other"), mover=True, tidy_every_ms=200):
        station.client.schedule("elsewhere", queue="other")
        wait_until(lambda: ran_elsewhere, what="the other queue is served all the same")
        wait_until(lambda: "WRONGTYPE" in station.said(), what="it is reported")
        if client.exists("aside"):
            client.rename("aside", key)  # in one step: a key that is missing meanwhile is damage of another kind
        else:
            client.delete(key)
        load.all_ran()
    assert set(load.attempts) == {1}
    assert station.client.stats(QUEUE)[0].failed == 0


def test_damage_that_comes_while_a_worker_is_idle_keeps_nobody_from_the_other_queue(station: Station) -> None:
    """A blocked read cannot say which of its streams is to blame; asking one by one does."""
    ran = station.tape()
    station.handles("elsewhere", lambda: ran.append(1))
    client: Any = station.connector.commands()
    with station.working(queues=(QUEUE, "other"), sleep_ms=1_000):
        wait_until(lambda: any("b" in row["flags"] for row in client.client_list()), what="it waits")
        client.delete(station.keys().stream)
        client.set(station.keys().stream, "not yours")
        for round_number in range(1, 4):
            seen = refusals(client)
            wait_until(partial(more_refusals, client, seen), what="the damaged queue is asked again")
            station.client.schedule("elsewhere", queue="other")
            wait_fairly(partial(has_all, ran, round_number), within=1.5, what="the other queue is served")
    client.delete(station.keys().stream)
    station.driver.tidy(QUEUE)


def test_an_outcome_kept_by_an_idle_worker_is_settled_when_it_can_be(station: Station) -> None:
    """Nothing comes any more that would make it fetch; the kept outcome must do."""
    client: Any = station.connector.commands()
    ran = station.tape()

    def last() -> None:
        client.set(station.keys().of("results"), "not yours")
        ran.append(1)

    station.handles("last", last)
    station.client.schedule("last", id="o1")
    with station.working():
        wait_until(lambda: ran, what="it runs")
        wait_until(lambda: refusals(client) > 1, what="settling fails")
        client.delete(station.keys().of("results"))
        station.until("o1", State.ABSENT)
    assert station.ends("o1") == ["done"]


def test_a_damaged_queue_is_asked_about_once_a_second(station: Station) -> None:
    """And not as fast as a loop can turn: by reader, mover and janitor together, a few times a second."""
    station.client.schedule("note", id="o1", delay="1h")
    client: Any = station.connector.commands()
    client.delete(station.keys().stream)
    client.set(station.keys().stream, "not yours")

    with station.working(queues=(QUEUE, "other"), mover=True):
        wait_until(lambda: "WRONGTYPE" in station.said(), what="it is reported")
        first, begun = refusals(client), time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 2.0, what="two seconds pass")
        more, took = refusals(client) - first, time.monotonic() - begun
        assert more < 10 * took
    client.delete(station.keys().stream)
    station.driver.tidy(QUEUE)


@pytest.mark.parametrize("name", ["queues", "workers"])
def test_a_key_of_no_queue_of_the_wrong_type_stops_nobody(station: Station, name: str) -> None:
    load = Load(station, jobs=30)
    station.client.schedule_many([{"name": "note", "id": job_id} for job_id in load.ids])
    client = station.connector.commands()
    with station.working(mover=True, tidy_every_ms=200):
        client.delete(f"delayq:{name}")
        client.set(f"delayq:{name}", "not yours")
        load.all_ran()
        client.delete(f"delayq:{name}")
    assert set(load.attempts) == {1}


def test_a_full_redis_takes_nothing_new_and_drains(server: LocalServer, stations: MakeStation) -> None:
    station = stations(server.url)
    load = Load(station, jobs=300)
    client = station.connector.commands()
    station.client.schedule_many([{"name": "note", "id": job_id, "delay": "300ms"} for job_id in load.ids])
    before = client.dbsize(), client.hlen(station.keys().of("jobs"))
    client.config_set("maxmemory", "1mb")
    with pytest.raises(BackendFull):
        station.client.schedule("note", id="refused")
    with pytest.raises(BackendFull):
        station.client.schedule_many([{"name": "note", "id": f"r{n}", "queue": "fresh"} for n in range(5)])
    assert station.state("refused") is State.ABSENT
    assert (client.dbsize(), client.hlen(station.keys().of("jobs"))) == before, "not a trace of what was refused"
    with station.working(mover=True, tidy_every_ms=200):
        load.all_ran()
    assert set(load.runs.values()) == {1}
    client.config_set("maxmemory", "0")
    sound(station)
