"""Leases: kept while a job runs, handed over while one is slow, and guarded when a worker was away."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from delayq.core.states import State
from delayq.jobs.context import JobContext
from tests.support.crew import Crew, Duty, whole
from tests.support.machine import fair_clock
from tests.support.servers import connect
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

LEASE_S = 1.0


def freeze(pid: int | None) -> None:
    assert pid is not None
    for one in whole(pid):
        os.kill(one, signal.SIGSTOP)


def thaw(pid: int | None) -> None:
    assert pid is not None
    for one in whole(pid):
        os.kill(one, signal.SIGCONT)


@pytest.mark.timed
@pytest.mark.station(lease_ms=1_000)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_of_three_leases_runs_once(station: Station, kind: str) -> None:
    starts = station.tape()

    def slow(context: JobContext) -> None:
        starts.append(context.token)
        time.sleep(3 * LEASE_S)

    async def slow_async(context: JobContext) -> None:
        starts.append(context.token)
        await asyncio.sleep(3 * LEASE_S)

    station.handles("slow", slow if kind == "sync" else slow_async)
    station.client.schedule("slow", id="o1")
    with station.working(mover=True, tidy_every_ms=200), station.working(mover=True, tidy_every_ms=200):
        wait_until(lambda: starts, what="it starts")
        station.until("o1", State.ABSENT)
    assert len(starts) == 1
    assert station.fences() == []


@pytest.mark.station(lease_ms=400)
def test_a_delay_of_three_leases_is_no_reason_to_hand_a_job_out(station: Station) -> None:
    """What waits is in nobody's hands: nothing starts before its time, and again only what was taken back since."""
    starts, server = station.tape(), station.connector.commands()

    def note(context: JobContext) -> None:
        with connect(station.url) as client:
            seconds, micros = client.time()
        starts.append((context.id, seconds * 1000 + micros // 1000))

    station.handles("note", note)
    refs = station.client.schedule_many([{"name": "note", "id": f"j{n}", "delay": "1300ms"} for n in range(20)])
    with station.working(mover=True, tidy_every_ms=100), station.working(mover=True, tidy_every_ms=100):
        wait_until(lambda: not server.hlen(station.keys().of("jobs")), what="all have run")
    dues = {ref.id: ref.due_ms or 0 for ref in refs}
    assert {job for job, _ in starts} == set(dues)
    assert [job for job, at_ms in starts if at_ms < dues[job]] == []
    assert len(starts) - len(dues) <= station.client.stats(QUEUE)[0].counters.get("reclaimed_total", 0)


@pytest.mark.timed
def test_a_slow_job_among_quick_ones_keeps_nobody_waiting(station: Station) -> None:
    """What was prefetched behind it is handed back, and another worker starts it within a second."""
    entered, go_on = station.flag(), station.flag()
    started = station.tape()

    def note(n: int) -> None:
        started.append((n, fair_clock()))
        if n == 400:
            entered.set()
            assert go_on.wait(50)

    station.handles("note", note)
    station.client.schedule_many([{"name": "note", "data": {"n": n}, "id": f"j{n:04}"} for n in range(700)])
    with station.working():
        assert entered.wait(50)
        blocked = fair_clock()
        with station.working():
            wait_until(lambda: len(started) == 700, what="all others have started")
        assert max(at for _, at in started) - blocked < 1.0
        assert station.state("j0400") is State.RESERVED
        assert station.connector.commands().hlen(station.keys().of("jobs")) == 1, "what was done before is settled"
        go_on.set()
        station.until("j0400", State.ABSENT)
    assert station.fences() == []
    stats = station.client.stats(QUEUE)[0]
    assert stats.counters["handed_back_total"] > 0
    assert stats.counters["acked_total"] == 700


@pytest.mark.timed
@pytest.mark.station(lease_ms=1_000)
def test_a_frozen_worker_changes_nothing_when_it_thaws(station: Station, redis_url: str, tmp_path: Path) -> None:
    """Frozen in the middle of a job for three leases; another worker finishes it; the thaw is one fence in the log."""
    duty = Duty(url=redis_url, folder=tmp_path, more={"mover": False})
    with Crew(duty) as crew:
        frozen = crew.hire()
        station.client.schedule("note", {"until": "go"}, id="o1", retention="1h")
        wait_until(lambda: crew.ledger.jobs("start"), what="it starts")
        freeze(frozen.pid)
        first = station.job("o1")
        with station.working(mover=True, tidy_every_ms=200, queues=("other",)):
            rescue = crew.hire()
            station.driver.reclaim(QUEUE)
            wait_until(lambda: station.driver.reclaim(QUEUE).reclaimed, what="it is taken back")
            (tmp_path / "go").touch()
            station.until("o1", State.COMPLETED)
            after = station.job("o1")
            thaw(frozen.pid)
            wait_until(lambda: "it was taken back meanwhile" in crew.log_of(frozen), what="the fence")
        assert station.job("o1") == after, "the thawed worker changed nothing"
        tokens = [line.token for line in crew.ledger.lines("end")]
        assert tokens[0] != first.entry, "the rescuer ended first"
        assert sorted(tokens) == sorted([first.entry, tokens[0]])
        assert frozen.pid is not None
        assert rescue.pid is not None
        [one, other] = [line.pid for line in crew.ledger.lines("start")]
        assert one in whole(frozen.pid)
        assert other in whole(rescue.pid)
        assert crew.logs().count("it was taken back meanwhile") == 1


@pytest.mark.timed
@pytest.mark.station(lease_ms=1_000)
def test_a_thawed_worker_starts_nothing_that_it_only_held(station: Station, redis_url: str, tmp_path: Path) -> None:
    """Frozen with a prefetched batch behind it: after the thaw it asks anew instead of starting what it had."""
    duty = Duty(url=redis_url, folder=tmp_path, more={"mover": False})
    with Crew(duty) as crew:
        frozen = crew.hire()
        station.client.schedule_many([{"name": "note", "id": f"warm{n}"} for n in range(200)])
        wait_until(lambda: len(crew.ledger.jobs("end")) == 200, what="its prefetch is large")
        station.client.schedule_many([{"name": "note", "data": {"ms": 5}, "id": f"j{n}"} for n in range(300)])

        def frozen_in_a_batch() -> bool:
            freeze(frozen.pid)
            if station.client.stats(QUEUE)[0].reserved > 2:
                return True
            thaw(frozen.pid)
            return False

        wait_until(frozen_in_a_batch, what="it freezes with several in hand")
        running = [line.job for line in crew.ledger.lines("start")][-1]
        crew.hire()
        station.driver.reclaim(QUEUE)
        wait_until(lambda: station.driver.reclaim(QUEUE).reclaimed, what="they are taken back")
        wait_until(lambda: not station.connector.commands().hlen(station.keys().of("jobs")), what="the other ran all")
        thaw(frozen.pid)
        station.client.schedule("note", id="after")
        wait_until(lambda: "after" in crew.ledger.jobs("end"), what="work goes on")
        wait_until(lambda: "this process stood still" in crew.log_of(frozen), what="it says why it dropped them")
        twice = [job for job, times in crew.ledger.counted("start").items() if times > 1]
        assert twice in ([], [running]), "only what ran, or was about to, when it froze"


@pytest.mark.timed
@pytest.mark.station(lease_ms=1_000)
def test_a_job_that_kills_its_worker_kills_nobody_elses_and_is_failed(
    station: Station, redis_url: str, tmp_path: Path
) -> None:
    """Supervisor and all, so that leases run out. Four starts at most.

    Its neighbours, read in one batch with it every time, run once and vanish never.
    """
    duty = Duty(url=redis_url, folder=tmp_path, more={"mover": False})
    rows = station.connector.commands()
    with Crew(duty) as crew:
        crew.hire(Duty(url=redis_url, folder=tmp_path, worker=False, tidy_every_ms=200))
        station.client.schedule("deadly", id="bomb")
        for vanished in range(1, 5):
            member = crew.hire()
            member.join(30)
            assert member.exitcode == -signal.SIGKILL
            before = [f"before{vanished}-{n}" for n in range(300)]  # enough for a large prefetch
            station.client.schedule_many([{"name": "note", "id": job_id} for job_id in before])
            station.until("bomb", State.READY, State.FAILED)
            behind = [f"behind{vanished}-{n}" for n in range(100)]
            station.client.schedule_many([{"name": "note", "id": job_id} for job_id in behind])
            assert rows.hkeys(station.keys().of("recoveries")) == [b"bomb"], "nobody else was charged"
        crew.hire()
        wait_until(lambda: rows.hlen(station.keys().of("jobs")) == 1, what="all others are done")
        bomb = station.job("bomb")
        assert bomb.state is State.FAILED
        assert bomb.failure is not None
        assert bomb.failure.type == "WorkerVanished"
        assert "4 times" in bomb.failure.message
        counted = crew.ledger.counted("start")
        assert counted.pop("bomb") == 4
        assert set(counted.values()) == {1}
        assert {line.attempt for line in crew.ledger.lines("start")} == {1}, "a vanished worker costs no attempt"
