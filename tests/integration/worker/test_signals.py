"""Real signals to real processes: TERM idle and busy, a second one, and one while Redis hangs or is not there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from delayq.core.states import State
from tests.support.crew import Crew, Duty
from tests.support.machine import fair_clock
from tests.support.servers import OwnServer
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timed


@pytest.fixture
def crew(redis_url: str, tmp_path: Path) -> Iterator[Crew]:
    with Crew(Duty(url=redis_url, folder=tmp_path, lease_ms=5_000)) as made:
        yield made


def tell(member: ForkServerProcess, number: signal.Signals) -> None:
    assert member.pid is not None
    os.kill(member.pid, number)


def exit_code(member: ForkServerProcess, within_s: float) -> int | None:
    """The exit code; fails when the process takes longer than it may."""
    started = fair_clock()
    member.join(30)
    took = fair_clock() - started
    assert took <= within_s, f"it took {took:.2f} s to end"
    return member.exitcode


def is_here(station: Station) -> bool:
    return bool(station.connector.commands().zcard("delayq:workers"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_an_idle_worker_ends_cleanly(station: Station, crew: Crew, number: signal.Signals) -> None:
    member = crew.hire()
    wait_until(lambda: is_here(station), what="the worker is here")
    tell(member, number)
    assert exit_code(member, 2.0) == 0
    assert not is_here(station)


def test_a_busy_worker_finishes_and_another_starts_the_rest_at_once(
    station: Station, crew: Crew, tmp_path: Path
) -> None:
    station.client.schedule_many([{"name": "note", "id": f"quick{n}"} for n in range(100)])
    station.client.schedule("note", {"until": "go"}, id="slow")
    station.client.schedule_many([{"name": "note", "id": f"rest{n}"} for n in range(20)])
    member = crew.hire()
    wait_until(lambda: "slow" in crew.ledger.jobs("start"), what="the slow job runs")
    tell(member, signal.SIGTERM)
    wait_until(lambda: "stopping (terminated by SIGTERM)" in crew.log_of(member), what="it has heard")
    (tmp_path / "go").touch()
    assert exit_code(member, 2.0) == 0
    assert "slow" in crew.ledger.jobs("end"), "it was finished first"
    left = station.client.stats(QUEUE)[0]
    assert (left.ready, left.reserved) == (20, 0)
    crew.hire()
    wait_until(lambda: len(crew.ledger.jobs("end")) == 121, what="the rest is run")
    assert max(crew.ledger.counted("start").values()) == 1
    assert {line.attempt for line in crew.ledger.lines("start")} == {1}, "no attempt was spent"
    station.until_gone([f"rest{n}" for n in range(20)])


def test_the_second_signal_tears_the_job_out_and_hands_it_back_uncounted(station: Station, crew: Crew) -> None:
    station.client.schedule("note", {"ms": 60_000}, id="endless")
    member = crew.hire()
    wait_until(lambda: crew.ledger.jobs("start"), what="the job runs")
    tell(member, signal.SIGTERM)
    tell(member, signal.SIGINT)  # another number: two of the same may become one on the way
    assert exit_code(member, 2.0) == 130
    back = station.job("endless")
    assert back.envelope is not None
    assert (back.state, back.envelope.attempts, back.recoveries) == (State.READY, 0, 0)


def test_a_worker_that_waits_for_redis_can_be_stopped(tmp_path: Path) -> None:
    with Crew(Duty(url=f"unix://{tmp_path}/nobody.sock", folder=tmp_path)) as crew:
        member = crew.hire()
        wait_until(lambda: "waiting to start" in crew.log_of(member), what="it says that it waits")
        tell(member, signal.SIGTERM)
        assert exit_code(member, 5.5) == 0


@pytest.mark.slow
def test_a_worker_ends_although_redis_hangs(own_server: OwnServer, tmp_path: Path) -> None:
    """One blocking read and one call on the way out, each of which ends by its own time."""
    server = own_server()
    with Crew(Duty(url=server.url, folder=tmp_path)) as crew:
        member = crew.hire()
        with Station(server.url) as station:
            wait_until(lambda: is_here(station), what="the worker is here")
        server.stop()
        try:
            tell(member, signal.SIGTERM)
            assert exit_code(member, 10.0) == 0
        finally:
            server.cont()
        assert "left without" in crew.log_of(member)
