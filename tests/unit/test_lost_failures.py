"""A place for failed jobs that cannot be used is found before a worker begins, and not when the first job fails."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delayq.app import driver_factory
from delayq.core.errors import ConfigError
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import FailedAlone, tables
from delayq.manager import Manager
from delayq.settings import Settings


def manager_with(failed: str) -> Manager:
    """Of a beanstalkd that nobody asks: the place for failures is looked at without it."""
    return Manager(Settings(connections={"mq": {"driver": "beanstalkd", "failed": failed}}))


@pytest.mark.parametrize(
    ("failed", "why", "step"),
    [
        (
            "/dev/null/failed",
            "Failed jobs cannot be kept in /dev/null/failed: Not a directory.",
            "Make it a folder that this user may write.",
        ),
        (
            "sqlite:////nowhere/at/all.db",
            "The database sqlite:////nowhere/at/all.db cannot be reached",
            "Is its folder there, and may this user write in it? Check the failed of the connection 'mq'.",
        ),
        (
            "sqlite:///{folder}/empty.db",
            "/empty.db is not ready: table failed_jobs is missing.",
            "`delayq database migrate --connection mq` makes what is missing.",
        ),
        (
            "sqlite:///{folder}/laravels.db",
            "/laravels.db is not ready: table failed_jobs_delayq_about is missing.",
            "`delayq database migrate --connection mq` makes what is missing.",
        ),
        (
            "sqlite:///{folder}/shut.db",
            "/shut.db said no: this table takes nothing.",
            "Look at the database's own log.",
        ),
    ],
    ids=["no folder", "no database", "no table", "a table of Laravel's alone", "a table nobody may write"],
)
def test_a_worker_is_refused(failed: str, why: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laravels(tmp_path / "laravels.db")
    shut(tmp_path / "shut.db")
    driver: Any = driver_factory(manager_with(failed.format(folder=tmp_path)), "mq")()
    monkeypatch.setattr(driver._broker, "ready", lambda queues: None)
    with pytest.raises(ConfigError) as refused:
        driver.steward(["q"]).lease_s()
    assert refused.value.message.startswith("The failed jobs of the connection 'mq' could not be kept: ")
    assert why in refused.value.message
    assert refused.value.hint == f"{step} Or name another place: failed = … below [connections.mq]."
    driver.close()


def test_a_look_at_the_table_leaves_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'good.db'}"
    with closing(Database(url)) as database:
        migrate(database, FailedAlone(tables().failed))
    driver: Any = driver_factory(manager_with(url), "mq")()
    monkeypatch.setattr(driver._broker, "ready", lambda queues: None)
    driver.steward(["q"]).lease_s()
    with closing(DatabaseFailedStore(Database(url), tables().failed)) as store:
        assert store.count() == 0
    driver.close()


def test_a_process_of_its_own_is_not_started_whose_failure_would_be_lost(tmp_path: Path) -> None:
    aside = {"driver": "background", "app": "shop", "failed": f"sqlite:///{tmp_path / 'empty.db'}"}
    connection = Manager(Settings(connections={"aside": aside})).connection("aside")
    with pytest.raises(ConfigError, match="The failed jobs of the connection 'aside' could not be kept") as refused:
        connection.schedule(JobSpec(name="close"), OnConflict.KEEP)
    assert "`delayq database migrate --connection aside`" in refused.value.hint


def laravels(file: Path) -> None:
    """The table as Laravel's migration makes it."""
    theirs = "id integer primary key, uuid text, connection text, queue text, payload text, exception text, failed_at"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"CREATE TABLE failed_jobs ({theirs})")


def shut(file: Path) -> None:
    """A table that is there, and takes no row."""
    with closing(Database(f"sqlite:///{file}")) as database:
        migrate(database, FailedAlone(tables().failed))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "CREATE TRIGGER shut BEFORE INSERT ON failed_jobs BEGIN SELECT RAISE(FAIL, 'this table takes nothing'); END"
        )


@pytest.mark.parametrize("failed", ["null", "{folder}/failed/here"])
def test_a_good_place_is_no_reason(failed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = driver_factory(manager_with(failed.format(folder=tmp_path)), "mq")()
    monkeypatch.setattr(driver._broker, "ready", lambda queues: None)
    assert driver.steward(["q"]).lease_s() == 90
    assert failed == "null" or list((tmp_path / "failed/here").iterdir()) == []
    driver.close()
