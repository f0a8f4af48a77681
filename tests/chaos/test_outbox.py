"""A relay dies at each of its steps, while an application commits and rolls back; the jobs run and are forgotten.

Every committed job runs exactly once, no rolled-back one ever. The worker is left alone: what runs twice here was made
twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from delayq import dispatch
from delayq.jobs.current import using_manager
from tests.support.outbox import STEPS, drained, dying_relay, manager_of, outbox_on, rows
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

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


class Shop:
    """An application that writes jobs in its transactions, and remembers which it committed."""

    def __init__(self, seed: int) -> None:
        self.committed: set[str] = set()
        self._chance = random.Random(seed)

    def transaction(self, session: Session) -> None:
        """A few jobs, a savepoint that is taken back, and the end: mostly a commit."""
        ids = {f"{self._chance.getrandbits(60):x}" for _ in range(self._chance.randint(1, 4))}
        for job_id in ids:
            dispatch("note", {"number": job_id}, id=job_id if self._chance.random() < 0.5 else None, within=session)
        savepoint = session.begin_nested()
        dispatch("note", {"number": "rolled back"}, within=session)
        savepoint.rollback()
        if self._chance.random() < 0.3:
            session.rollback()
        else:
            session.commit()
            self.committed.update(ids)

    def while_it_lives(self, relay: Any, session: Session) -> None:
        """One transaction after another until the relay is dead."""
        deadline = time.monotonic() + PATIENCE_S
        while relay.exitcode is None:
            assert time.monotonic() < deadline, "the relay does not die"
            self.transaction(session)
            relay.join(0.005)


def test_every_committed_job_runs_once_and_no_other(
    database: str, station: Station, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    shop, manager, ran = Shop(seed), manager_of(station.url), station.tape()

    def note(number: str) -> None:
        ran.append(number)

    station.handles("note", note)
    deaths = [(step, number) for step in STEPS for number in (1, 3)]
    with outbox_on(database) as engine, station.working(), using_manager(manager), Session(engine) as session:
        for step, number in deaths:
            with dying_relay(database, station.url, step, number) as relay:
                shop.while_it_lives(relay, session)
            assert relay.exitcode == -9, f"seed {seed}: the relay ended by itself while {step}"
            wait_until(lambda: idle(station), timeout=PATIENCE_S, what="what was sent has run and is forgotten")
        drained(database, manager)
        assert rows(engine) == []
        wait_until(lambda: idle(station), timeout=PATIENCE_S, what="the rest has run")
    manager.close()
    counted = Counter(ran)
    record_property("chaos", f"outbox, seed {seed}: {len(shop.committed)} jobs committed, {len(deaths)} relays killed")
    assert {job: count for job, count in counted.items() if count > 1} == {}
    assert set(counted) == shop.committed
