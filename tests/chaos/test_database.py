"""Workers are killed with SIGKILL, group and all, while they work jobs from a database and others send more.

Every job that was taken runs, and none is left or failed. It may run twice: what a dead worker had run and not yet
settled runs again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from tests.support.cli import environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

FULL = os.environ.get("DELAYQ_CHAOS", "") == "full"
JOBS = 20_000 if FULL else 600
KILLS = 20 if FULL else 2
WORKERS = 2
PATIENCE_S = 120.0
SHOP = """
import os
import time

from delayq import job

LEDGER = os.open("ran.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@job("note", tries=1)
def note(number: int) -> None:
    os.write(LEDGER, f"{number}\\n".encode())
    time.sleep(0.001)
"""


@pytest.fixture(params=["sqlite", "postgresql"], scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def shop(server_url: str, tmp_path: Path) -> Path:
    """A folder with settings, jobs, and the tables they go to."""
    url = server_url or f"sqlite:///{tmp_path / 'jobs.db'}"
    (tmp_path / "shop.py").write_text(SHOP)
    toml = f'lease = "1s"\nmax_recoveries = {10 * KILLS}\n[connections.jobs]\ndriver = "database"\nurl = "{url}"\n'
    (tmp_path / "delayq.toml").write_text(toml + 'table = "chaos_jobs"\nfailed_table = "chaos_failed"\n')
    return tmp_path


@pytest.fixture
def connection(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseConnection]:
    monkeypatch.chdir(shop)
    with closing(make_manager(Settings())) as manager:
        connection = manager.connection("jobs")
        assert isinstance(connection, DatabaseConnection)
        migrate(connection.broker.database, connection.broker.tables)
        yield connection


class Workers:
    """`delayq work`, so many at once; each a group of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        words = [sys.executable, "-m", "delayq", "--connection", "jobs", "work", "--app", "shop", "--quiet"]
        log = (self._folder / "worker.log").open("ab")
        with log:
            made = subprocess.Popen(
                words, cwd=self._folder, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
        self._running.append(made)

    def kill_the_oldest(self) -> None:
        self._kill(self._running.pop(0))

    def end(self) -> None:
        while self._running:
            self._kill(self._running.pop())

    def _kill(self, worker: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@pytest.fixture
def workers(shop: Path) -> Iterator[Workers]:
    workers = Workers(shop)
    yield workers
    workers.end()


def ran(shop: Path) -> list[int]:
    """The numbers of jobs that ran, as often as they did."""
    ledger = shop / "ran.txt"
    return [int(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def left(connection: DatabaseConnection) -> Any:
    broker = connection.broker
    asked = select(func.count()).select_from(broker.tables.jobs)
    return broker.database.read(lambda reader: reader.execute(asked).scalar())


def test_no_job_is_lost(shop: Path, connection: DatabaseConnection, workers: Workers) -> None:
    for _ in range(WORKERS):
        workers.start()
    share = JOBS // (KILLS + 1)
    for turn in range(KILLS + 1):
        numbers = range(turn * share, JOBS if turn == KILLS else (turn + 1) * share)
        connection.schedule_many([JobSpec(name="note", data={"number": n}) for n in numbers], OnConflict.KEEP)
        if turn < KILLS:
            enough = turn * share + share // 3
            wait_until(lambda: len(ran(shop)) > enough, timeout=PATIENCE_S, what="workers work")  # noqa: B023
            workers.kill_the_oldest()
            workers.start()
    wait_until(lambda: left(connection) == 0, timeout=PATIENCE_S, what="the table is empty")
    assert set(ran(shop)) == set(range(JOBS))
    store = connection.backend.failed
    assert store is not None
    with closing(store()) as failed:
        assert failed.count() == 0
