"""What people write is kept in any script, also where a database's own default knows few letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import make_url

from delayq.core.errors import ConfigError
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.schema import lacking, migrate
from delayq.drivers.database.tables import tables
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.serving.connection import item_of
from tests.integration.database.conftest import broker_on
from tests.support.laravel_tables import Laravel

NASTY = "a\0b ж 🙂"
FEW = "few_letters"
ABOUT = "failed_jobs_delayq_about"


def failed() -> FailedJob:
    failure = Failure("ValueError", NASTY, traceback=NASTY, at_ms=1_000, attempt=1)
    return FailedJob(id="1", connection="jobs", queue="q", name="x", payload=b"{}", failure=failure, failed_ms=1_000)


def keep(database: Database) -> None:
    store = DatabaseFailedStore(database, tables().failed)
    store.add(failed())
    kept = store.get("1")
    assert kept is not None
    assert (kept.failure.message, kept.failure.traceback) == (NASTY, NASTY)


def push(broker: DatabaseBroker) -> None:
    now_ms = broker.now_ms()
    job = item_of(prepare(JobSpec(name="x", data={"who": NASTY}, queue="q"), Options(), now_ms), now_ms)
    broker.push([job], OnConflict.KEEP)


def made(server: str, create: str) -> Iterator[str]:
    """A database of its own on that server."""
    url = make_url(server).set(database=FEW).render_as_string(hide_password=False)
    with closing(Database(server)) as database:
        engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {FEW}")
            connection.exec_driver_sql(f"CREATE DATABASE {FEW} {create}")
    yield url


@pytest.fixture
def latin_mariadb(mariadb_url: str) -> Iterator[str]:
    yield from made(mariadb_url, "CHARACTER SET latin1")


@pytest.fixture
def latin_postgres(postgres_url: str) -> Iterator[str]:
    yield from made(postgres_url, "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")


@pytest.fixture
def plain_postgres(postgres_url: str) -> Iterator[str]:
    yield from made(postgres_url, "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")


def test_an_error_with_any_text_in_it_is_kept(url: str) -> None:
    with closing(Database(url)) as database:
        migrate(database, tables())
        keep(database)


def test_a_mariadb_that_knows_few_letters_gets_tables_for_all(latin_mariadb: str) -> None:
    with closing(broker_on(latin_mariadb)) as broker:
        migrate(broker.database, broker.tables)
        assert lacking(broker.database, broker.tables) == []
        push(broker)
        keep(broker.database)


def test_tables_that_laravel_made_there_are_widened(latin_mariadb: str) -> None:
    with closing(broker_on(latin_mariadb)) as broker:
        Laravel(broker.database.engine).migrate()
        migrate(broker.database, broker.tables)
        with broker.database.engine.begin() as connection:
            for column in ("failed_jobs MODIFY payload", "failed_jobs MODIFY exception", f"{ABOUT} MODIFY about"):
                connection.exec_driver_sql(f"ALTER TABLE {column} LONGTEXT CHARACTER SET latin1")
        with pytest.raises(ConfigError, match=r"column failed_jobs.payload for every letter is missing"):
            broker.ready(["q"])
        with pytest.raises(
            ConfigError, match=r"cannot hold every letter: .*`delayq database migrate --connection jobs`"
        ):
            keep(broker.database)
        columns = ("failed_jobs.payload", "failed_jobs.exception", f"{ABOUT}.about")
        assert migrate(broker.database, broker.tables) == [f"column {name} for every letter made" for name in columns]
        broker.ready(["q"])
        push(broker)
        keep(broker.database)


def test_a_postgresql_that_knows_few_letters_is_refused(latin_postgres: str) -> None:
    with closing(broker_on(latin_postgres)) as broker:
        with pytest.raises(ConfigError, match=r"'few_letters' has the encoding LATIN1.*ENCODING 'UTF8'"):
            migrate(broker.database, broker.tables)
        with pytest.raises(ConfigError, match="LATIN1"):
            broker.ready(["q"])


def test_a_postgresql_that_takes_any_bytes_gets_utf_8(plain_postgres: str) -> None:
    with closing(broker_on(plain_postgres)) as broker:
        migrate(broker.database, broker.tables)
        push(broker)
        keep(broker.database)
