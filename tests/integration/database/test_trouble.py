"""What goes wrong is one clear sentence with the next step, and nothing is half done."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text

from delayq.core.errors import BackendError, BackendUnavailable, ConfigError, InvalidInput, OutcomeUnknown
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict
from delayq.drivers.broker import Item
from delayq.drivers.database.backend import backend, place_of
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.due import LATEST_S
from delayq.drivers.database.schema import migrate
from delayq.drivers.serving.connection import item_of
from delayq.settings.tables import ConnectionSettings
from tests.integration.database.conftest import broker_on
from tests.support.laravel_tables import Laravel

Q = "trouble"


@pytest.fixture
def broker(url: str) -> Iterator[DatabaseBroker]:
    with closing(broker_on(url)) as broker:
        migrate(broker.database, broker.tables)
        yield broker


@pytest.fixture
def lite_broker(lite: str) -> Iterator[DatabaseBroker]:
    with closing(broker_on(lite, lock_wait="100ms")) as broker:
        migrate(broker.database, broker.tables)
        yield broker


def item(broker: DatabaseBroker, **spec: Any) -> Item:
    now_ms = broker.now_ms()
    return item_of(prepare(JobSpec(**{"name": "close", "queue": Q, **spec}), Options(), now_ms), now_ms)


def push(broker: DatabaseBroker, *items: Item) -> None:
    broker.push(items, OnConflict.KEEP)


def test_a_table_that_is_not_there(url: str) -> None:
    with closing(broker_on(url)) as broker:
        with pytest.raises(
            ConfigError, match=r"has no table \S*jobs. `delayq database migrate --connection jobs` makes it."
        ):
            push(broker, item(broker))
        with pytest.raises(ConfigError, match="delayq database migrate"):
            broker.reserve(Q, 1)
        with pytest.raises(
            ConfigError, match=r"is not ready: table jobs is missing. `delayq database migrate --connection"
        ):
            broker.ready([Q])


def test_a_table_without_our_columns(engine: Engine, url: str) -> None:
    Laravel(engine).migrate()
    with (
        closing(broker_on(url)) as broker,
        pytest.raises(ConfigError, match="`delayq database migrate --connection jobs` adds them"),
    ):
        push(broker, item(broker))


def test_a_table_that_is_somebody_elses(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE jobs (id integer primary key, title varchar(50))"))
    with closing(broker_on(url)) as broker:
        with pytest.raises(
            BackendError, match=r"it is not Laravel's: it has no column queue. Give another name: table"
        ):
            migrate(broker.database, broker.tables)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM jobs")).scalar() == 0


def test_a_due_time_no_row_can_hold(broker: DatabaseBroker) -> None:
    fits = item(broker)
    beyond = fits._replace(id="beyond", delay_ms=LATEST_S * 1000 + 1 - broker.now_ms() + 60_000)
    with pytest.raises(InvalidInput, match="holds times up to 2038-01-19"):
        push(broker, fits, beyond)
    assert broker.depth(Q).ready == 0
    push(broker, fits)
    with pytest.raises(InvalidInput, match="2038"):
        broker.reschedule(Q, fits.id, (LATEST_S + 1) * 1000)
    assert broker.depth(Q).ready == 1


def test_a_file_that_somebody_keeps_locked(lite_broker: DatabaseBroker, lite: str) -> None:
    with closing(sqlite3.connect(lite.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match=r"was locked by another program for 0.1 s"):
            push(lite_broker, item(lite_broker))
        other.execute("ROLLBACK")
    push(lite_broker, item(lite_broker))
    assert lite_broker.depth(Q).ready == 1


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with (
        closing(broker_on(f"sqlite:///{tmp_path}/no/folder/jobs.db")) as broker,
        pytest.raises(BackendUnavailable, match="unable to open database file"),
    ):
        push(broker, item(broker))


@pytest.mark.parametrize(
    ("place", "options", "said"),
    [
        ("", {}, "names no database"),
        ("sqlite://", {}, "in memory cannot be shared with a worker"),
        ("sqlite:///:memory:", {}, "in memory cannot be shared with a worker"),
        ("oracle://ann:secret@db/x", {}, r"No jobs can be kept on oracle \(oracle://ann:\*\*\*@db/x\)"),
        ("no url", {}, "is no URL of a database"),
        ("sqlite:///x.db", {"tabel": "x"}, "has an option 'tabel' that its driver database does not know"),
        ("sqlite:///x.db", {"retry_after": 90}, "retry_after of the connection 'jobs' is 90"),
        ("sqlite:///x.db", {"php_objects": "yes"}, "php_objects of the connection 'jobs' is 'yes'"),
    ],
)
def test_settings_that_cannot_be_used(place: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        backend("jobs", ConnectionSettings(driver="database", place=place, options=options), Options())


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ConnectionSettings(driver="database", place="postgresql://ann:secret@127.0.0.1:1/shop")
    made = backend("jobs", given, Options())
    assert "secret" not in made.where
    with closing(place_of("jobs", given, Options()).open()) as broker, pytest.raises(BackendUnavailable) as raised:
        broker.reserve(Q, 1)
    assert "secret" not in str(raised.value)
    assert str(raised.value).startswith("The database postgresql://ann:***@127.0.0.1:1/shop cannot be reached")


@pytest.mark.parametrize("wrong", ["user", "database"])
def test_what_somebody_has_to_set_right_is_said_so(url: str, wrong: str) -> None:
    """A worker waits for a server that is away; for a password nobody would ever mend it would wait for ever."""
    at = make_url(url)
    if at.get_backend_name() == "sqlite":
        pytest.skip("a file knows no users")
    at = at.set(username="nobody", password="secret") if wrong == "user" else at.set(database="nothing_here")
    with closing(broker_on(at.render_as_string(hide_password=False))) as broker:
        with pytest.raises(ConfigError) as refused:
            push(broker, item(broker))
        with pytest.raises(ConfigError):
            broker.ready([Q])
    said = "refused the user or the password" if wrong == "user" else "There is no database"
    assert said in refused.value.message
    assert "the url of the connection" in refused.value.hint
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_connection_lost_before_the_commit_is_made_again(broker: DatabaseBroker) -> None:
    push(broker, item(broker))
    broken: list[bool] = []

    def work(connection: Any) -> int:
        if not broken:
            broken.append(True)
            lost(connection)
        return int(connection.execute(text("SELECT 7")).scalar())

    if broker.database.kind != "postgresql":
        pytest.skip("a file has no connection to lose, and PyMySQL leaves its socket to the collector, which says so")
    assert broker.database.write(work) == 7


def test_a_connection_lost_during_the_commit_is_said_so(broker: DatabaseBroker) -> None:
    if broker.database.kind != "postgresql":
        pytest.skip("a file has no connection to lose, and PyMySQL leaves its socket to the collector, which says so")

    def work(connection: Any) -> None:
        connection.execute(text("DELETE FROM jobs WHERE id = -1"))
        lost(connection)

    with pytest.raises(OutcomeUnknown, match="lost during a commit, so nobody knows whether it counts"):
        broker.database.write(work)


def lost(connection: Any) -> None:
    """Cut the line to the server."""
    raw = connection.connection.driver_connection
    file = raw.fileno() if hasattr(raw, "fileno") else raw._sock.fileno()
    with socket.socket(fileno=socket.dup(file)) as line:
        line.shutdown(socket.SHUT_RDWR)


def test_without_its_driver_it_names_the_extra(lite: str) -> None:
    program = (
        "import sys; sys.modules['pymysql'] = None\n"
        "from delayq.drivers.database.engine import Database\n"
        "from delayq.core.errors import ConfigError\n"
        "try: Database('mysql://ann@localhost/shop')\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'delayq[mysql]'" in done.stdout
