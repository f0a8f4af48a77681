"""A relay dies at each of its steps, while an application commits and rolls back; the jobs run and are forgotten.

Every committed job runs exactly once, no rolled-back one ever. The worker is left alone: what runs twice here was made
twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from delayq import dispatch
from delayq.drivers.within import within
from delayq.jobs.current import using_manager
from tests.support.outbox import STEPS, drained, dying_relay, manager_of, outbox_on, rows
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

DEATHS = 2
"""Of each kind: at the first time a relay comes to that step, and at the third."""
PATIENCE_S = 120.0


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def station(redis_url: str) -> Iterator[Station]:
    with Station(redis_url, lease_ms=60_000) as station:
        yield station


def idle(station: Station) -> bool:
    return not any(stats.ready + stats.reserved + stats.scheduled for stats in station.client.stats())


def test_every_committed_job_runs_once_and_no_other(
    database: str, station: Station, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    chance, ran = random.Random(seed), station.tape()
    committed: set[str] = set()

    def note(number: str) -> None:
        ran.append(number)

    station.handles("note", note)
    manager = manager_of(station.url)

    def transaction(session: Session) -> None:
        """A few jobs, and the end: mostly a commit, sometimes a savepoint inside that is taken back."""
        ids = {f"{chance.getrandbits(60):x}" for _ in range(chance.randint(1, 4))}
        for job_id in ids:
            dispatch("note", {"number": job_id}, id=job_id if chance.random() < 0.5 else None)
        savepoint = session.begin_nested()
        dispatch("note", {"number": "rolled back"})
        savepoint.rollback()
        if chance.random() < 0.3:
            session.rollback()
        else:
            session.commit()
            committed.update(ids)

    deaths = 0
    with outbox_on(database) as engine, station.working(), using_manager(manager), Session(engine) as session:
        for step in STEPS:
            for number in (1, 3)[:DEATHS]:
                with dying_relay(database, station.url, step, number) as relay, within(session):
                    wait_until(
                        lambda relay=relay: transaction(session) or relay.exitcode is not None,  # type: ignore[misc]
                        timeout=PATIENCE_S,
                        what=f"the relay dies {step}",
                    )
                assert relay.exitcode == -9, f"seed {seed}: the relay ended by itself while {step}"
                wait_until(lambda: idle(station), timeout=PATIENCE_S, what="what was sent has run and is forgotten")
                deaths += 1
        drained(database, manager)
        assert rows(engine) == []
        wait_until(lambda: len(ran) >= len(committed), timeout=PATIENCE_S, what="all of them have run")
    manager.close()
    counted = Counter(ran)
    record_property("chaos", f"outbox, seed {seed}: {len(committed)} jobs committed, {deaths} relays killed")
    assert {job: count for job, count in counted.items() if count > 1} == {}
    assert set(counted) == committed
