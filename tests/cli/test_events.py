"""`delayq work --json`: what happens, for programs."""

from __future__ import annotations

import json
import select
from collections import Counter
from typing import Any

import pytest

from delayq import DelayQ
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

CHATTY = """
import os
import subprocess

from delayq import job

print("imported")

@job("chatty", tries=1)
def chatty(text: str = "") -> None:
    print("a print")
    os.write(1, b"a write\\n")
    subprocess.run(["echo", "a program"], check=True)
    if text:
        raise ValueError(text * 5_000)

@job("order.close", queue="orders")
def close(n: int) -> None: ...
"""


@pytest.fixture(autouse=True)
def chatty(cli: Cli) -> None:
    """An application that prints wherever it can."""
    (cli.folder / "chatty.py").write_text(CHATTY)


def without_time(line: dict[str, Any]) -> dict[str, Any]:
    assert line["time"].endswith("Z")
    return {name: value for name, value in line.items() if name not in ("time", "took_ms", "late_ms")}


def test_one_line_for_everything_that_happens(cli: Cli, q: DelayQ) -> None:
    q.schedule("order.close", {"n": 1}, id="a", queue="orders")
    done = cli.ok("work", "--app", "chatty", "--queue", "orders:2,default", "--weighted", "--json", "--stop-when-empty")
    first, begun, ended, last = done.documents
    job = {"job_id": "a", "job": "order.close", "queue": "orders", "attempt": 1}
    assert (first["event"], first["queues"], first["jobs"]) == (
        "worker_starting",
        ["orders", "default"],
        ["chatty", "order.close"],
    )
    assert first["weights"] == {"orders": 2, "default": 1}
    assert without_time(begun) == {"event": "job_started", **job}
    assert without_time(ended) == {"event": "job_ended", **job, "outcome": "done", "error": None}
    assert 0 <= ended["took_ms"] < 10_000
    assert without_time(last) == {"event": "worker_stopping", "name": first["name"], "reason": "empty", "jobs": 1}


def test_handlers_and_their_programs_print_elsewhere(cli: Cli, q: DelayQ) -> None:
    q.schedule("chatty", id="c1")
    done = cli.ok("work", "--app", "chatty", "--json", "--stop-when-empty")
    assert [line["event"] for line in done.documents] == [
        "worker_starting",
        "job_started",
        "job_ended",
        "worker_stopping",
    ]
    for said in ("imported", "a print", "a write", "a program"):
        assert said in done.err.splitlines()
    assert "Serving default, orders" in done.err
    assert "chatty c1 done in" in done.err


def test_a_failure_with_a_long_message_is_one_line_that_a_pipe_takes_at_once(cli: Cli, q: DelayQ) -> None:
    q.schedule("chatty", {"text": "né\x1b\n"}, id="c1")
    done = cli.ok("work", "--app", "chatty", "--json", "--stop-when-empty")
    ended = done.documents[2]
    assert (ended["outcome"], ended["error"]["type"]) == ("failed", "ValueError")
    assert ended["error"]["message"].startswith("né\\x1b\\nné")
    assert 500 < len(done.lines[2].encode()) < select.PIPE_BUF


def test_quiet_silences_the_lines_for_people(cli: Cli, q: DelayQ) -> None:
    q.schedule("bad", id="b1")
    done = cli.ok("work", "--app", "shop", "--json", "--quiet", "--stop-when-empty")
    assert done.err == ""
    assert done.documents[2]["outcome"] == "failed"
    assert cli.ok("work", "--app", "shop", "--quiet", "--stop-when-empty").err == ""


@pytest.mark.parametrize(("reason", "code"), [("interrupted", 0), ("aborted", 130)])
def test_it_names_the_reason_of_the_stop(cli: Cli, q: DelayQ, reason: str, code: int) -> None:
    """By one signal, after the job; by a second one, in the middle of it."""
    q.schedule("slow", id="s1")
    worker = cli.start("work", "--app", "shop", "--json")
    wait_until((cli.folder / "started").exists, what="the job runs")
    worker.terminate()
    if reason == "interrupted":
        (cli.folder / "go").touch()
    else:
        assert worker.stderr is not None
        heard = "stopping (terminated by SIGTERM)"
        assert any(heard in line for line in iter(worker.stderr.readline, "")), "it has heard"
        worker.terminate()
    done = end(worker)
    assert done.code == code
    last = done.documents[-1]
    assert (last["event"], last["reason"]) == ("worker_stopping", reason)


def test_a_job_that_outlasts_the_grace_is_interrupted(cli: Cli, q: DelayQ) -> None:
    q.schedule("slow", id="s1")
    worker = cli.start("work", "--app", "shop", "--json", "--grace", "1s")
    wait_until((cli.folder / "started").exists, what="the job runs")
    worker.terminate()
    done = end(worker)
    [ended] = [line for line in done.documents if line["event"] == "job_ended"]
    assert (ended["job_id"], ended["outcome"]) == ("s1", "interrupted")
    assert "slow s1 interrupted in" in done.err
    assert "stopped (interrupted) after 1 job" in done.err
    assert "after 1 jobs" not in done.err
    info = q.get("s1")
    assert info is not None
    assert (info.state, info.attempts) == ("ready", 0)


def test_lines_of_several_processes_do_not_mix(cli: Cli, q: DelayQ) -> None:
    q.schedule_many([{"name": "order.close", "data": {"n": n}, "id": f"j{n}", "queue": "orders"} for n in range(500)])
    done = cli.ok("work", "--app", "chatty", "--processes", "3", "--json", "--quiet", "--stop-when-empty")
    told = Counter((line["event"], line["job_id"]) for line in done.documents if "job_id" in line)
    assert told == {(event, f"j{n}"): 1 for n in range(500) for event in ("job_started", "job_ended")}


def test_the_lines_can_be_followed(cli: Cli) -> None:
    worker = cli.start("work", "--app", "shop", "--json")
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["event"] == "worker_starting", "at once, not at the end"
    worker.terminate()
    assert end(worker).code == 0


def test_a_reader_that_leaves_costs_no_job(cli: Cli, q: DelayQ) -> None:
    worker = cli.start("work", "--app", "shop", "--json")
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.stdout.close()
    q.schedule_many([{"name": "order.close", "data": {"order_id": n}, "id": f"j{n}"} for n in range(20)])
    wait_until(lambda: q.stats("default")[0].counters.get("acked_total") == 20, what="all are done")
    worker.terminate()
    assert worker.wait(30) == 0
