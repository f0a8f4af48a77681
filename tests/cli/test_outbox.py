"""`delayq relay` and `delayq outbox …`, on an SQLite database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

GOOD = '{"v":1,"id":"%s","name":"close","queue":"default","data":1,"attempts":0,"created_ms":1}'


@pytest.fixture
def path(tmp_path: Path, inline: Inline) -> Path:
    """A database with the table that `outbox sql` prints."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(inline.ok("outbox", "sql", "sqlite").out)
    connection.close()
    return path


def write(path: Path, job_id: str, envelope: str = "") -> None:
    """A row, as a program without delayq writes it."""
    with sqlite3.connect(path) as connection:
        row = (job_id, "close", "default", envelope or GOOD % job_id)
        connection.execute("INSERT INTO delayq_outbox (id, name, queue, envelope) VALUES (?, ?, ?, ?)", row)
    connection.close()


def test_once(path: Path, inline: Inline, q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "a")
    write(path, "b")
    assert inline("relay", "--once", "--database", f"sqlite:///{path}").out == "2\n"
    assert [info.id for info in q.iter_jobs("ready")] == ["a", "b"]
    monkeypatch.setenv("DELAYQ_DATABASE", f"sqlite:///{path}")
    assert inline("relay", "--once", "--json").documents == [{"sent": 0, "waiting": 0, "oldest_ms": 0, "refused": 0}]


def test_rows_that_were_set_aside(path: Path, inline: Inline, q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_DATABASE", f"sqlite:///{path}")
    for job_id in ("a", "b", "c"):
        write(path, job_id, "rubbish")
    assert inline("relay", "--once").out == "0\n"
    listed = inline("outbox", "list", "--json").documents
    assert [(one["seq"], one["id"]) for one in listed] == [(1, "a"), (2, "b"), (3, "c")]
    assert all("rubbish" not in one["reason"] and one["reason"] for one in listed)
    assert inline("outbox", "list", "--limit", "1").lines[1].split()[:4] == ["1", "a", "close", "default"]
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE delayq_outbox SET envelope = ? WHERE seq = 2", (GOOD % "b",))
    connection.close()
    assert inline("outbox", "retry", "2").out == "1\n"
    assert inline("relay", "--once").out == "1\n"
    assert inline("outbox", "forget", "1", "--yes").out == "1\n"
    assert inline("outbox", "forget", "--all", "--yes").out == "1\n"
    assert inline("outbox", "list", "--json").out == ""
    assert [info.id for info in q.iter_jobs("ready")] == ["b"]


FAULTS: dict[str, tuple[object, ...]] = {
    "envelope": (b"{}", None, "rubbish", "[]", 7),
    "id": (b"b", None),
    "name": (b"c", None),
    "queue": (b"q", None),
    "connection": (b"default", None, "elsewhere"),
    "on_conflict": (b"keep", None, "win"),
    "delay_ms": ("soon", None, 1.5, b"1"),
    "due_ms": ("soon", b"1"),
    "written_ms": ("today", None, 1.5),
    "leads": ("maybe", None, b"1"),
}
"""What a column may hold that it should not."""


def test_a_row_of_wrong_types_is_set_aside_and_the_others_go(
    path: Path, inline: Inline, q: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_DATABASE", f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        [made] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'delayq_outbox'").fetchone()
        connection.execute("DROP TABLE delayq_outbox")
        connection.execute(made.replace(" NOT NULL", ""))  # as a table made by hand may be
    connection.close()
    ids = []
    for column, values in FAULTS.items():
        for number, value in enumerate(values):
            ids.append(f"{column}-{number}")
            write(path, ids[-1])
            with sqlite3.connect(path) as connection:
                changed = f"UPDATE delayq_outbox SET {column} = ? WHERE seq = (SELECT max(seq) FROM delayq_outbox)"
                connection.execute(changed, (value,))
            connection.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE delayq_outbox SET name = CAST(x'ff' AS TEXT) WHERE id = 'envelope-0'")
    connection.close()
    write(path, "good")
    assert inline.ok("relay", "--once").out.strip().isdigit()
    going = {info.id for info in q.iter_jobs("ready")}
    assert "good" in going
    assert going <= {"good", *(one for one in ids if one.startswith("leads"))}
    listed = inline.ok("outbox", "list", "--json").documents
    assert len(listed) == len(ids) + 1 - len(going)
    assert all(one["reason"] for one in listed)
    assert len(inline.ok("outbox", "list").lines) == len(listed) + 1
    assert inline.ok("outbox", "forget", "--all", "--yes").out == f"{len(listed)}\n"


def test_what_is_refused(path: Path, inline: Inline) -> None:
    for words, code, text in [
        (("relay", "--once"), 2, "No database is named"),
        (("relay", "--database", "shop"), 2, "is no URL of a database"),
        (("outbox", "retry", "--database", f"sqlite:///{path}"), 2, "No row is named"),
        (("outbox", "sql", "oracle"), 2, "Use one of: postgresql, sqlite, mysql."),
        (("relay", "--once", "--database", f"sqlite:///{path}2"), 1, "no such table: delayq_outbox"),
    ]:
        done = inline(*words)
        assert (done.code, text in done.err) == (code, True), done.err


def test_the_password_of_a_database_is_not_shown(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_DATABASE", "postgresql://shop:secret@localhost/shop")
    [row] = [one for one in inline("config", "show", "--json").documents if one["name"] == "database"]
    assert row["value"] == "postgresql://shop:***@localhost/shop"


def test_a_relay_that_runs_sends_at_once_tells_its_lag_and_ends_when_asked(path: Path, cli: Cli, q: DelayQ) -> None:
    relay = cli.start("relay", "--json", "--every", "20ms", "--database", f"sqlite:///{path}")
    for job_id in ("a", "b"):
        write(path, job_id)
        wait_until(lambda job_id=job_id: q.get(job_id) is not None, timeout=30, what=f"{job_id} is there")  # type: ignore[misc]
    second = cli("relay", "--once", "--database", f"sqlite:///{path}")
    assert (second.code, "Another relay works on" in second.err) == (4, True)
    relay.terminate()
    done = end(relay)
    assert done.code == 0
    assert "Traceback" not in done.err
    assert set(json.loads(done.out.splitlines()[0])) == {"sent", "waiting", "oldest_ms", "refused"}
