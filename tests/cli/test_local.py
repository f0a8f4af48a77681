"""Without a URL: the embedded server, up, down and demo."""

from __future__ import annotations

import re
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support.cli import Cli, end
from tests.support.waiting import wait_until


def test_a_command_starts_the_server_and_down_stops_it(local: Cli) -> None:
    local.ok("schedule", "order.close", "--in", "1h", "--id", "o1")
    assert local.ok("stats", "--json").json["queues"][0]["scheduled"] == 1
    assert local.ok("down", "--json").json == {"stopped": True, "data_dir": str(local.folder / "data")}
    assert local.ok("down").out == "not running\n"
    assert local.ok("show", "o1", "--json").json["state"] == "scheduled", "the data stays"


def test_up_runs_everything_until_down(local: Cli) -> None:
    up = local.start("up", "--app", "shop")
    assert up.stdout is not None
    assert re.fullmatch(r"unix:///.+\.sock\?db=0\n", up.stdout.readline())
    local.ok("schedule", "order.close", "--in", "100ms", "--id", "o1", "--queue", "orders", "--data", '{"order_id":1}')
    wait_until((local.folder / "ran.txt").exists, what="the job runs")
    assert local.ok("down").out == "stopped\n"
    assert end(up).code == 0


@pytest.mark.parametrize("words", [(), ("--app", "shop")], ids=["loops", "worker"])
def test_down_ends_an_up_that_joined(local: Cli, words: tuple[str, ...]) -> None:
    local.ok("stats")
    up = local.start("up", *words)
    assert up.stdout is not None
    up.stdout.readline()
    local.ok("down")
    local.ok("stats")  # starts another server on the same socket, which that `up` must not take for its own
    done = end(up)
    assert done.code == 0
    assert done.err.splitlines()[-1] == "The embedded server was stopped, so this ends with it."
    assert "Joined" in done.err


def test_up_without_an_application_makes_jobs_ready(local: Cli) -> None:
    up = local.start("up")
    assert up.stdout is not None
    up.stdout.readline()
    local.ok("schedule", "order.close", "--in", "100ms", "--id", "o1", "--queue", "orders")
    wait_until(lambda: ready(local), what="it is due")
    up.send_signal(signal.SIGINT)
    assert end(up).code == 0
    assert local.ok("down").out == "not running\n", "its server ended with it"


def ready(local: Cli) -> int:
    count: int = local.ok("stats", "--queue", "orders", "--json").json["queues"][0]["ready"]
    return count


def test_the_data_survives_a_kill_of_up(local: Cli) -> None:
    up = local.start("up")
    assert up.stdout is not None
    up.stdout.readline()
    local.ok("schedule", "order.close", "--in", "1h", "--id", "o1")
    up.kill()
    up.wait(30)
    assert local.ok("cancel", "o1").out == "cancelled\n"


@pytest.mark.parametrize("word", ["up", "down"])
def test_up_and_down_are_about_the_embedded_server_alone(local: Cli, word: str) -> None:
    done = local(word, env={"DELAYQ_URL": "redis://:hunter2@db:6379/0"})
    assert (done.code, done.out) == (2, "")
    assert "env DELAYQ_URL" in done.err
    assert "hunter2" not in done.err


def test_a_data_directory_that_cannot_be_used(local: Cli) -> None:
    (local.folder / "file").touch()
    done = local("stats", env={"DELAYQ_DATA_DIR": str(local.folder / "file" / "data")})
    assert done.code == 2
    assert "DELAYQ_DATA_DIR" in done.err


@pytest.mark.timed
def test_demo(local: Cli) -> None:
    before = set(Path(tempfile.gettempdir()).glob("delayq-demo-*"))
    done = local.ok("demo")
    lines = done.lines
    assert lines[0].split() == ["order", "due", "started", "late", "ms", "outcome"]
    closed = [line.split() for line in lines if line.endswith("  closed")]
    assert {row[0] for row in closed} == {"order-1", "order-3", "order-4", "order-6", "order-7"}
    assert all(0 <= int(row[3]) < 1_000 for row in closed)
    assert [line.split()[0] for line in lines if line.endswith("paid: cancelled")] == ["order-2", "order-5"]
    [postponed] = [line.split() for line in lines if "postponed, closes in" in line]
    assert postponed[0] == "order-3"
    assert closed[-1][0] == "order-3"
    assert lines[-1].startswith("5 orders closed, 2 paid in time, 1 postponed; late by ")
    assert "\x1b" not in done.out + done.err
    assert set(Path(tempfile.gettempdir()).glob("delayq-demo-*")) <= before
    assert not (local.folder / "data").exists(), "it leaves the user's own server alone"


def test_demo_can_be_interrupted(local: Cli) -> None:
    demo = local.start("demo")
    assert demo.stdout is not None
    demo.stdout.readline()
    demo.send_signal(signal.SIGINT)
    done = end(demo)
    assert done.code in (1, 130)
    assert "Traceback" not in done.err
    assert not list(Path(local.env["XDG_RUNTIME_DIR"]).rglob("*.sock"))
