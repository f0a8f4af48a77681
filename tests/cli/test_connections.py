"""`delayq --connection NAME …`: every command over another backend, or one sentence that says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import ROOT, Cli, environment

JOBS = """
from delayq import job

@job("bad", tries=1)
def bad():
    raise ValueError("never works")
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Cli]:
    """A connection `mq` whose driver another package brings, and a Redis that is not there."""
    (tmp_path / "shop.py").write_text(JOBS)
    (tmp_path / "things").mkdir()
    (tmp_path / "delayq.toml").write_text(f"""
url = "unix:///tmp/delayq-nobody-is-here.sock"

[connections.mq]
driver = "shelf"
folder = "{tmp_path}/things"
queue = "mail"

[connections.typo]
driver = "shelf"
foldre = "x"

[connections.odd]
driver = "pigeon"

[connections.safe]
driver = "failover"
to = ["mq", "other"]

[connections.other]
driver = "shelf"
folder = "{tmp_path}/things"
""")
    plugin = tmp_path / "site" / "delayq_shelf-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: delayq-shelf\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[delayq.drivers]\nshelf = tests.support.shelf:backend\n")
    with closing(Cli(tmp_path, {**environment(), "PYTHONPATH": f"{plugin.parent}:{ROOT}"})) as cli:
        yield cli


def test_commands_over_another_backend(shelf: Cli) -> None:
    mq = ("--connection", "mq")
    made = shelf.ok(*mq, "schedule", "bad", "--in", "1h", "--json").json
    assert (made["queue"], made["state"], made["outcome"]) == ("mail", "scheduled", "created")
    [listed] = shelf.ok(*mq, "list", "--json").documents
    assert (listed["id"], listed["name"]) == (made["id"], "bad")
    assert shelf.ok(*mq, "show", made["id"], "--json").json["state"] == "scheduled"
    shelf.ok(*mq, "reschedule", made["id"], "--in", "2h")
    shelf.ok(*mq, "run-now", made["id"])
    [stats] = shelf.ok(*mq, "stats", "--json").json["queues"]
    assert (stats["queue"], stats["ready"], stats["scheduled"]) == ("mail", 1, 0)
    shelf.ok(*mq, "-q", "work", "--app", "shop", "--stop-when-empty", "--quiet")
    [failed] = shelf.ok(*mq, "failed", "list", "--json").documents
    assert (failed["id"], failed["error"]["message"]) == (made["id"], "never works")
    shelf.ok(*mq, "failed", "retry", made["id"])
    assert shelf.ok(*mq, "cancel", made["id"]).out == "cancelled\n"
    assert shelf(*mq, "cancel", made["id"]).code == 3
    shelf.ok(*mq, "schedule", "bad")
    assert shelf.ok(*mq, "clear", "--yes").out == "1\n"


def test_a_failover_takes_jobs_and_is_not_served(shelf: Cli) -> None:
    made = shelf.ok("--connection", "safe", "schedule", "bad", "--json").json
    assert (made["outcome"], made["connection"]) == ("created", "mq")
    assert "created in queue mail over mq, ready to run" in shelf.ok("--connection", "safe", "schedule", "bad").err
    done = shelf("--connection", "safe", "work", "--app", "shop")
    assert (done.code, "No worker can serve the connection 'safe'" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--connection", "nowhere", "list"), "There is no connection 'nowhere'; known are default, sync, null"),
        (("--connection", "odd", "schedule", "bad"), "has the driver 'pigeon'; known are"),
        (("--connection", "typo", "schedule", "bad"), "has an option 'foldre' that its driver shelf does not know"),
        (
            ("--connection", "mq", "pause", "mail"),
            "'mq' is shelf, and `delayq pause` works on connections with the driver redis alone",
        ),
        (
            ("--connection", "mq", "archive", "o-1", "--queue", "mail"),
            "'mq' is shelf, and `delayq archive` works on connections with the driver redis alone",
        ),
        (("--connection", "mq", "serve"), "the HTTP service works on connections with the driver redis alone"),
        (("--connection", "mq", "move"), "The connection 'mq' needs no mover"),
        (("--connection", "mq", "schedule", "bad", "--id", "o-1"), "cannot tell whether the id 'o-1' is taken"),
        (("--connection", "mq", "schedule", "bad", "--in", "2h"), "can hold a job for 1h at most"),
        (
            ("--connection", "sync", "list"),
            "runs each job at once, in whoever sends it; it keeps none that could be",
        ),
        (("--connection", "safe", "stats"), "Ask --connection mq or --connection other."),
        (("--connection", "null", "work", "--app", "shop"), "No worker can serve the connection 'null'"),
    ],
    ids=lambda value: " ".join(value[1:4]) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_one_sentence(shelf: Cli, words: tuple[str, ...], sentence: str) -> None:
    done = shelf(*words)
    assert (done.code, done.out, sentence in done.err) == (2, "", True), done.err
    assert (
        not (shelf.folder / "things" / "shelf.json").exists()
        or json.loads((shelf.folder / "things" / "shelf.json").read_text() or "[]") == []
    )


def test_doctor_looks_at_another_backend_and_its_place_for_failures(shelf: Cli) -> None:
    assert shelf.ok("--connection", "mq", "doctor", "--json").json == {"ok": True, "findings": []}
    (shelf.folder / "things").rename(shelf.folder / "gone")
    sick = shelf("--connection", "mq", "doctor")
    assert (sick.code, "There is no shelf at" in sick.out, "next: Make the folder." in sick.out) == (1, True, True)
