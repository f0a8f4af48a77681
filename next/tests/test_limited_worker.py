"""Limits in real workers: threads, kills, and the output of commands for a refused job."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from delayq import DelayQ, RateLimit
from delayq.cli import main as cli
from delayq.core.envelope import REFUSED
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, client_fixture, start_fixture

pytestmark = pytest.mark.processes

APP = """
import asyncio, os, time
from delayq import Concurrency, JobContext, RateLimit, RateLimited, job, use_limit

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
use_limit("sms", RateLimit.per_hour(1))

def note(text: str) -> None:
    os.write(log, f"{text}\\n".encode())

@job("three", queue="q", timeout="30s", middleware=[Concurrency("three", 3)])
def three(n: int) -> None:
    note(f"+{n}")
    time.sleep(0.3)
    note(f"-{n}")

@job("athree", queue="q", timeout="30s", middleware=[Concurrency("three", 3)])
async def athree(n: int) -> None:
    note(f"+{n}")
    await asyncio.sleep(0.3)
    note(f"-{n}")

@job("one", queue="q", timeout="30s", tries=2, middleware=[Concurrency("one", 1)])
def one(context: JobContext, n: int, seconds: float = 0.0) -> None:
    note(f"one {n} attempt {context.attempt} recoveries {context.recoveries} pid {os.getpid()}")
    if not context.recoveries:
        time.sleep(seconds)

@job("sms", queue="q", tries=1, middleware=[RateLimited("sms")])
def sms() -> None:
    note("sms")

@job("drop", queue="q", middleware=[Concurrency("one", 1, drop=True)])
def drop() -> None:
    note("dropped")

@job("unbounded", queue="q", tries=1, middleware=[Concurrency("one", 1)])
def unbounded() -> None:
    note("unbounded")
"""


client = client_fixture(queue="q")
start = start_fixture(APP, DELAYQ_LEASE="2s")


def answer(url: str, *words: str) -> Any:
    end = CliRunner().invoke(cli.app, ["--url", url, *words, "--json"])
    assert end.exit_code == 0, end.output
    return json.loads(end.stdout)


def most_at_once(marks: list[str]) -> int:
    running = most = 0
    for mark in marks:
        running += 1 if mark[0] == "+" else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("name", ["three", "athree"])
def test_a_limit_of_three_among_ten_threads_of_two_processes(
    client: DelayQ, start: Start, tmp_path: Path, name: str
) -> None:
    for n in range(20):
        client.schedule(name, {"n": n})
    start("--queue", "q", "--processes", "2", "--threads", "5")
    wait_until(lambda: len(lines(tmp_path / "log")) == 40, patience=60)
    assert most_at_once(lines(tmp_path / "log")) == 3
    wait_until(lambda: client.stats("q")[0].counters["acked"] == 20)
    (info,) = client.limits.list()
    assert (info.held, info.granted, info.refused > 0) == (0, 20, True)


def test_the_place_of_a_killed_job_is_for_its_own_next_attempt_at_once(
    client: DelayQ, start: Start, tmp_path: Path, server: redis.Redis
) -> None:
    start("--queue", "q")
    killed = client.schedule("one", {"n": 1, "seconds": 30.0})
    wait_until(lambda: lines(tmp_path / "log"))
    other = client.schedule("one", {"n": 2}, delay="1h")
    (log,) = lines(tmp_path / "log")
    at = time.monotonic()
    os.kill(int(log.rsplit(" ", 1)[1]), signal.SIGKILL)
    client.run_now(other.id)
    wait_until(lambda: client.get(killed.id) is None)
    assert time.monotonic() - at < 10  # the place itself expires 40 s after its start
    wait_until(lambda: client.get(other.id) is None)
    ran = [line.rsplit(" pid", 1)[0] for line in lines(tmp_path / "log")]
    assert ran[0] == "one 1 attempt 1 recoveries 0"
    assert sorted(ran[1:]) == ["one 1 attempt 1 recoveries 1", "one 2 attempt 1 recoveries 0"]


def test_a_refusal_costs_no_attempt_and_why_names_the_limit(
    client: DelayQ, start: Start, tmp_path: Path, url: str
) -> None:
    until = client.limits.acquire("one", 1, holder="q another", expire_ms=60_000)
    assert until is not None
    start("--queue", "q")
    job = client.schedule("one", {"n": 1})
    wait_until(lambda: (info := client.get(job.id)) and info.refusals and info.refusals.count == 2)
    info = client.get(job.id)
    assert info is not None and info.refusals is not None and info.envelope is not None
    assert (info.refusals.limit, info.attempts, info.failure, info.recoveries) == ("one", 0, None, 0)
    why = answer(url, "why", job.id, "--queue", "q")
    assert [reason["code"] for reason in why["reasons"]] == ["limit"]
    shown = answer(url, "show", job.id, "--queue", "q")
    assert (shown["limit"], shown["headers"][REFUSED].split()[1], shown["attempts"]) == ("one", "one", 0)
    client.limits.release("one", holder="q another", expires_ms=until)
    wait_until(lambda: client.get(job.id) is None)
    assert [line.rsplit(" pid", 1)[0] for line in lines(tmp_path / "log")] == ["one 1 attempt 1 recoveries 0"]


def test_a_worker_does_not_start_without_the_rates_of_its_jobs(start: Start, client: DelayQ, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace('use_limit("sms", RateLimit.per_hour(1))', ""))
    assert start("--queue", "q").wait(20) == 2
    assert (tmp_path / "err").read_text() == (
        "delayq: The limit 'sms' of the job 'sms' has no rate. Give RateLimited a rate, or call use_limit('sms', "
        "RateLimit.per_minute(60)) in the module that declares the job.\n"
    )


def test_rates_drops_and_jobs_without_a_timeout(client: DelayQ, start: Start, tmp_path: Path) -> None:
    assert client.limits.take("sms", RateLimit.per_hour(1))
    assert client.limits.acquire("one", 1, holder="q another", expire_ms=60_000)
    start("--queue", "q")
    refused = client.schedule("sms")
    dropped = client.schedule("drop")
    broken = client.schedule("unbounded", timeout="0s")
    wait_until(lambda: client.get(dropped.id) is None)
    wait_until(lambda: (info := client.get(refused.id)) and info.refusals)
    wait_until(lambda: (info := client.get(broken.id)) and info.state == "failed")
    info = client.get(broken.id)
    assert info is not None and info.failure is not None
    assert (info.failure.type, "but its timeout is 0" in info.failure.message) == ("InvalidInput", True)
    assert lines(tmp_path / "log") == []
