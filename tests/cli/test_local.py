"""Without a URL: the embedded server, up, down and demo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from delayq.redis.embedded import EmbeddedServer
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


def upped(local: Cli, *words: str) -> subprocess.Popen[str]:
    """A running `up`."""
    up = local.start("up", *words)
    assert up.stdout is not None
    assert up.stdout.readline()
    return up


def slow_job(local: Cli) -> None:
    """A job that runs until there is a file `go`, and which must not run a second time."""
    local.ok("schedule", "slow", "--in", "0s", "--id", "s1", "--retention", "1h")
    wait_until((local.folder / "started").exists, what="the job runs")


def let_it_end(local: Cli) -> None:
    (local.folder / "go").touch()


@pytest.mark.parametrize("joined", [False, True], ids=["own", "joined"])
@pytest.mark.parametrize("words", [(), ("--app", "shop")], ids=["loops", "worker"])
def test_down_ends_an_up(local: Cli, words: tuple[str, ...], joined: bool) -> None:
    if joined:
        local.ok("stats")
    up = upped(local, *words)
    down = local.ok("down")
    assert down.out == "stopped\n"
    assert f"Asked `delayq up` (process {up.pid}) to leave" in down.err
    done = end(up)
    assert done.code == 0
    assert "`delayq down` wants to stop the embedded server, so this ended first." in done.err.splitlines()
    assert ("Joined" if joined else "Started") in done.err
    assert local.ok("down").out == "not running\n"


@pytest.mark.parametrize("joined", [False, True], ids=["own", "joined"])
def test_down_waits_for_the_job_that_runs(local: Cli, joined: bool) -> None:
    if joined:
        local.ok("stats")
    up = upped(local, "--app", "shop")
    slow_job(local)
    down = local.start("down")
    assert down.stderr is not None
    assert "to leave; what runs may end" in down.stderr.readline()
    assert down.poll() is None
    assert up.poll() is None
    let_it_end(local)
    assert end(up).code == 0
    assert end(down).out == "stopped\n"
    shown = local.ok("show", "s1", "--json").json
    assert (shown["state"], shown["attempts"]) == ("completed", 1), "its outcome was kept; it does not run twice"


def test_down_now_waits_for_nothing_and_the_job_starts_elsewhere(local: Cli) -> None:
    up = upped(local, "--app", "shop")
    slow_job(local)
    assert local.ok("down", "--now").out == "stopped\n"
    assert end(up).code == 130
    shown = local.ok("show", "s1", "--json").json
    assert (shown["state"], shown["attempts"]) == ("ready", 0), "handed back, uncounted"


def test_a_second_down_is_tired_of_waiting(local: Cli) -> None:
    up = upped(local, "--app", "shop")
    slow_job(local)
    down = local.start("down")
    assert down.stderr is not None
    down.stderr.readline()
    local.ok("down")
    assert end(up).code == 130
    assert end(down).code == 0


def test_an_up_whose_own_server_is_killed_fails_and_says_so(local: Cli) -> None:
    up = upped(local)
    server = EmbeddedServer(local.folder / "data").running()
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    done = end(up)
    assert done.code == 5
    assert "The embedded server has died (it was killed by signal 9), so this ends with it." in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [(), ("--app", "shop")], ids=["loops", "worker"])
def test_a_server_that_ends_by_itself_ends_the_up_on_it_at_once(local: Cli, words: tuple[str, ...]) -> None:
    """By its process: another one on the same socket, which the next command starts, is not taken for it."""
    local.ok("stats")
    up = upped(local, *words)
    if words:
        slow_job(local)
    server = EmbeddedServer(local.folder / "data").running()
    assert server is not None
    os.kill(server.pid, signal.SIGTERM)
    wait_until(lambda: EmbeddedServer(local.folder / "data").running() is None, what="the server has ended")
    local.ok("stats")
    done = end(up)
    assert done.code == 0
    assert done.err.splitlines()[-1] == "The embedded server was stopped, so this ends with it."
    if words:
        assert "stopping (gone); what runs has 1 s" in done.err


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
    home = EmbeddedServer(Path(local.env["DELAYQ_DATA_DIR"]))
    wait_until(lambda: home.running() is None, what="its server has ended too")
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
    own = local.folder / "tmp"
    own.mkdir()
    local.env["TMPDIR"] = str(own)
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
    assert not list(own.glob("delayq-demo-*"))
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
