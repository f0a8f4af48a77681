"""top: one snapshot for programs and pipes, and a view on a terminal that follows what happens."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.waiting import wait_until

USAGE = 2
FAST = ("--every", "100ms")


def test_a_snapshot_for_programs(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", queue="orders", delay="1h")
    q.pause("mails")
    shown = inline.ok("top", "--json", *FAST).json
    assert {one["queue"]: one["paused"] for one in shown["queues"]} == {"orders": False, "mails": True}
    assert shown["queues"][1]["per_s"] == {"scheduled": 0.0, "done": 0.0, "released": 0.0, "failed": 0.0}
    assert (shown["workers"], shown["running"], shown["failures"]) == ([], [], [])
    assert shown["control"]["maintenance"] is False
    assert shown["at"].endswith("Z")
    only = inline.ok("top", "--json", "--queue", "orders", *FAST).json
    assert [one["queue"] for one in only["queues"]] == ["orders"]


def test_a_snapshot_for_people(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", queue="orders", delay="1h")
    q.start_maintenance(reason="new \x1b schema")
    for words in (("top", *FAST), ("top", "--once", *FAST)):
        done = inline.ok(*words)
        assert {"queues", "workers", "running", "recent failures"} <= set(done.lines)
        assert any(line.split()[:2] == ["orders", "1"] for line in done.lines)
        assert "Maintenance. new \\x1b schema" in done.err
        assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("every", ["99ms", "2h", "soon"])
def test_how_often_has_limits(inline: Inline, every: str) -> None:
    assert inline("top", "--once", "--every", every).code == USAGE


def test_what_runs_and_what_failed(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("work", "--app", "shop", "--queue", "default")
    q.schedule("bad", {"text": "not \x1b today"}, id="b1")
    q.schedule("slow", id="s1")
    wait_until((cli.folder / "started").exists, what="it runs")
    wait_until(lambda: any(one.about["running"] for one in q.workers()), what="the worker says so")
    shown = cli.ok("top", "--json", *FAST).json
    (running,) = shown["running"]
    assert (running["id"], running["name"], running["queue"]) == ("s1", "slow", "default")
    (failure,) = shown["failures"]
    assert (failure["id"], failure["type"]) == ("b1", "ValueError")
    plain = cli.ok("top", *FAST)
    assert "ValueError: not \\x1b today" in plain.out
    assert "s1" in cli.ok("workers").out
    (cli.folder / "go").touch()
    wait_until(lambda: q.get("s1") is None, what="it is done")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)


@contextmanager
def terminal(cli: Cli, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**cli.env, "TERM": "xterm", "COLUMNS": "160", "LINES": "60"}
    process = subprocess.Popen(
        [sys.executable, "-m", "delayq", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=cli.folder,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(fd: int, wanted: str, seconds: float = 30.0) -> str:
    """What the terminal showed until `wanted` was on it, without its escape sequences."""
    seen, text, end = b"", "", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            seen += os.read(fd, 65536)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode("utf-8", "replace"))
        if wanted in text:
            return text
    raise AssertionError(f"{wanted!r} did not appear: {text}")


def test_on_a_terminal_it_follows_what_happens_until_ctrl_c(cli: Cli, q: DelayQ) -> None:
    q.schedule("order.close", queue="orders", delay="1h")
    with terminal(cli, "top", *FAST) as (process, fd):
        assert "recent failures" in read_until(fd, "recent failures")
        q.schedule("order.close", queue="later-came-this", delay="1h")
        read_until(fd, "later-came-this")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_json_is_one_document(inline: Inline) -> None:
    assert json.loads(inline.ok("top", "--json", *FAST).out)["queues"] == []


def test_how_long_a_job_has_run_is_told_as_of_now(inline: Inline, q: DelayQ, redis_client: redis.Redis) -> None:
    seconds, _ = redis_client.time()
    job = {"id": "a", "queue": "default", "since_ms": (seconds - 60) * 1_000, "for_ms": 5}
    redis_client.set("delayq:worker:w1", json.dumps({"name": "w1", "queues": ["default"], "running": [job]}), ex=60)
    redis_client.zadd("delayq:workers", {"w1": 4_000_000_000_000})
    shown = inline.ok("top", "--json", *FAST).json
    [worker], [running] = shown["workers"], shown["running"]
    listed = inline.ok("workers", "--json").json
    for told in (running, worker["running"][0], listed["running"][0], q.workers()[0].about["running"][0]):
        assert 60_000 <= told["for_ms"] < 90_000
