"""`delayq database …`, on an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from delayq.app import open_desk
from delayq.core.failure import Failure
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.tables import tables
from delayq.drivers.failed_store import FailedJob
from delayq.settings import Settings
from tests.cli.conftest import Inline
from tests.support.cli import Cli

COLUMNS = ["id", "queue", "payload", "attempts", "reserved_at", "available_at", "created_at"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A connection of that driver in the settings; the file its url names."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jobs.db"
    (tmp_path / "delayq.toml").write_text(f'[connections.jobs]\ndriver = "database"\nurl = "sqlite:///{path}"\n')
    return path


def columns(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_migrate_makes_the_tables_once(path: Path, inline: Inline) -> None:
    done = inline("database", "migrate")
    assert done.lines[0] == "table jobs created"
    assert columns(path, "jobs")[:7] == COLUMNS
    assert "10 steps done" in done.err
    again = inline("database", "migrate")
    assert (again.code, again.out) == (0, "")
    assert "everything is there" in again.err


def test_check_changes_nothing_and_tells(path: Path, inline: Inline) -> None:
    missing = inline("database", "migrate", "--check")
    assert (missing.code, len(missing.lines)) == (1, 10)
    assert columns(path, "jobs") == []
    inline("database", "migrate")
    assert inline("database", "migrate", "--check").code == 0
    document = {"connection": "jobs", "database": f"sqlite:///{path}", "done": []}
    assert inline("database", "migrate", "--json").documents == [document]


def test_the_connection_that_is_meant_is_the_only_one_touched(path: Path, inline: Inline, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with (tmp_path / "delayq.toml").open("a") as file:
        file.write(f'[connections.other]\ndriver = "database"\nurl = "sqlite:///{other}"\n')
    done = inline("--connection", "other", "database", "migrate", "--json")
    assert [document["connection"] for document in done.documents] == ["other"]
    assert (columns(path, "jobs"), columns(other, "jobs")[:7]) == ([], COLUMNS)
    refused = inline("--connection", "null", "database", "migrate")
    assert refused.code == 2
    assert "The connection 'null' keeps neither its jobs nor its failed jobs in a database" in refused.err
    assert "Those that do: jobs, other." in refused.err
    assert columns(path, "jobs") == []
    assert len(inline("database", "migrate", "--json").documents) == 2


def test_a_database_that_no_connection_names(inline: Inline, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    assert inline("database", "migrate", "--database", f"sqlite:///{other}").code == 0
    assert columns(other, "failed_jobs")[:3] == ["id", "uuid", "connection"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No connection keeps its jobs or its failed jobs in a database"),
        (("--connection", "nobody"), "There is no connection 'nobody'"),
        (("--connection", "null"), "No connection in the settings does. Or name a database with --database."),
        (("--database", "oracle://ann:secret@db/x"), "No jobs can be kept on oracle (oracle://ann:***@db/x)"),
    ],
)
def test_bad_input(words: tuple[str, ...], said: str, inline: Inline, tmp_path: Path) -> None:
    done = inline("database", "migrate", *words)
    assert done.code == 2
    assert said in done.err
    assert "secret" not in done.err


def test_a_store_of_failed_jobs_in_a_database_gets_its_table(path: Path, inline: Inline, tmp_path: Path) -> None:
    failed = tmp_path / "failed.db"
    with (tmp_path / "delayq.toml").open("a") as file:
        file.write(f'[connections.mq]\ndriver = "beanstalkd"\nfailed = "sqlite:///{failed}"\n')
    told = inline("--connection", "mq", "failed", "list")
    assert (told.code, "`delayq database migrate --connection mq` makes it." in told.err) == (2, True)
    done = inline("database", "migrate", "--connection", "mq")
    assert (done.code, done.lines) == (0, ["table failed_jobs created", "table failed_jobs_delayq_about created"])
    assert columns(path, "jobs") == []
    assert columns(failed, "failed_jobs")[:3] == ["id", "uuid", "connection"]
    names = [document["connection"] for document in inline("database", "migrate", "--json").documents]
    assert sorted(names) == ["jobs", "mq"]


def test_a_database_that_is_away_keeps_nobody_from_the_others(path: Path, inline: Inline, tmp_path: Path) -> None:
    away = 'driver = "database"\nurl = "sqlite:////nowhere/at/all.db"\n'
    other = f'[connections.other]\ndriver = "database"\nurl = "sqlite:///{tmp_path / "other.db"}"\n'
    settings = tmp_path / "delayq.toml"
    settings.write_text(f"[connections.away]\n{away}{settings.read_text()}{other}")
    done = inline("database", "migrate")
    assert done.code == 5
    assert "Error: away: The database sqlite:////nowhere/at/all.db cannot be reached" in done.err
    assert "2 of 3 connections brought up to date." in done.err
    assert columns(path, "jobs")[:7] == columns(tmp_path / "other.db", "jobs")[:7] == COLUMNS
    first, *others = inline("database", "migrate", "--json").documents
    assert (first["connection"], "cannot be reached" in first["error"]) == ("away", True)
    assert [(document["connection"], document["done"]) for document in others] == [("jobs", []), ("other", [])]
    assert inline("database", "migrate", "--connection", "away").code == 5


def test_what_an_emptied_database_has_is_told(path: Path, inline: Inline) -> None:
    inline("database", "migrate")
    assert "No queue holds a job now, and none has failed" in inline.ok("--connection", "jobs", "stats").err
    with closing(Database(f"sqlite:///{path}")) as database:
        failed = FailedJob(
            id="1", connection="jobs", queue="mail", name="x", payload=b"{}", failure=Failure("E", "e"), failed_ms=1
        )
        DatabaseFailedStore(database, tables().failed).add(failed)
    [queue] = inline.ok("--connection", "jobs", "stats", "--json").json["queues"]
    assert (queue["queue"], queue["failed"], queue["ready"]) == ("mail", 1, 0)


def test_a_database_keeps_its_failed_jobs_itself(path: Path, inline: Inline) -> None:
    with (path.parent / "delayq.toml").open("a") as file:
        file.write('failed = "null"\n')
    refused = inline("--connection", "jobs", "list")
    assert (refused.code, "Leave it out; failed_table names that table." in refused.err) == (2, True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_the_sql_is_that_of_each_database(kind: str, inline: Inline, tmp_path: Path) -> None:
    printed = inline("database", "sql", kind).out
    assert printed.startswith("CREATE TABLE jobs (")
    assert ("BIGSERIAL" in printed, "AUTO_INCREMENT" in printed) == (kind == "postgresql", kind == "mysql")
    if kind == "sqlite":
        with closing(sqlite3.connect(tmp_path / "by_hand.db")) as connection:
            connection.executescript(printed)
        done = inline("database", "migrate", "--check", "--database", f"sqlite:///{tmp_path / 'by_hand.db'}")
        assert done.code == 0


def test_a_reason_given_by_hand_is_told_where_no_audit_log_keeps_it(path: Path, cli: Cli) -> None:
    cli.folder = path.parent
    cli.ok("database", "migrate")
    settings = Settings(connection="jobs")
    with open_desk(settings) as desk:
        owner = desk.schedule("act", unique="invoice:42", delay="1h")
    done = cli.ok("--connection", "jobs", "lock", "free", "--key", "invoice:42", "--reason", "it was moved")
    assert done.out == f"{owner.id}\n"
    [line] = [line for line in done.err.splitlines() if "delayq.audit" in line]
    assert f"held by {owner.id}: it was moved" in line


def test_failed_jobs_of_all_queues_are_meant_where_none_is_named(path: Path, cli: Cli) -> None:
    """As on Redis: what `failed list` shows is what `retry --all`, `forget --all` and `flush` work on."""
    jobs = ("--connection", "jobs")
    cli.ok("database", "migrate")
    for queue in ("mail", "orders"):
        cli.ok(*jobs, "schedule", "bad", "--queue", queue)
    cli.ok(*jobs, "-q", "work", "--app", "shop", "--queue", "mail,orders", "--stop-when-empty", "--quiet")
    listed = cli.ok(*jobs, "failed", "list", "--json").documents
    assert [one["queue"] for one in listed] == ["mail", "orders"]
    there = listed[1]["id"]
    for verb in ("retry", "forget"):
        done = cli(*jobs, "failed", verb, there)
        assert (done.code, "add --queue orders" in done.err) == (3, True)
    assert cli.ok(*jobs, "failed", "show", there, "--json").json["queue"] == "orders"
    asked = cli(*jobs, "failed", "forget", "--all")
    assert "Drop every failed job: 1 in mail, 1 in orders?" in asked.err
    assert cli.ok(*jobs, "failed", "retry", "--all").lines == [one["id"] for one in listed]
    assert "No failed job matches." in cli.ok(*jobs, "failed", "flush", "--yes").err
