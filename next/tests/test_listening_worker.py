"""Events in the children of real workers."""

import os
import signal
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, client_fixture, start_fixture, workers_of

pytestmark = pytest.mark.processes

APP = """
import asyncio, os, threading, time
from contextvars import ContextVar
from delayq import *

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
tenant = ContextVar("tenant", default="-")

def note(*words: object) -> None:
    os.write(log, (" ".join(map(str, words)) + "\\n").encode())

@job("ok", queue="q")
def ok() -> None:
    note("handler", tenant.get(), threading.get_ident())

@job("aok", queue="q")
async def aok() -> None:
    note("handler", tenant.get(), threading.get_ident())

@job("hanging", queue="q", timeout="1s", tries=1)
def hanging(is_broken: bool) -> None:
    note("handler of hanging")
    if is_broken:
        raise ValueError("no")

class Odd(dict):
    def values(self) -> object:
        raise SystemExit(3)

@job("odd", queue="q", tries=2, retention="1h")
def odd() -> Odd:
    return Odd(n=1)

class Bad(Job, name="bad", queue="q", tries=2, backoff="50ms"):
    def handle(self) -> None:
        raise ValueError("no")

    def failed(self, error: BaseException) -> None:
        note("hook", tenant.get())

@listener(JobStarted)
def started(event: JobStarted) -> None:
    tenant.set(event.id)
    note("started", event.name, event.attempt, threading.get_ident())

@listener(JobEnded)
def ended(event: JobEnded) -> None:
    if event.name == "hanging":
        time.sleep(1000)
    note("ended", event.name, event.outcome, type(event.error).__name__, tenant.get(), threading.get_ident())
    raise ValueError("a listener that fails")
"""

CHILDREN = """
import os
from delayq import *

def note(*words: object) -> None:
    with open("log", "a") as file:
        print(*words, file=file)

@job("ok", queue="q")
def ok() -> None:
    note("ran")

@listener(WorkerStarting)
def starting(event: WorkerStarting) -> None:
    note("starting", *event.queues)

@listener(WorkerLooping)
def looping(event: WorkerLooping) -> bool:
    with open("loops", "a") as file:
        print("loop", file=file)
    return not os.path.exists("closed")

@listener(QueuePaused)
def paused(event: QueuePaused) -> None:
    note("paused", event.queue)

@listener(QueueResumed)
def resumed(event: QueueResumed) -> None:
    note("resumed", event.queue)

@listener(WorkerStopping)
def stopping(event: WorkerStopping) -> None:
    note("stopping")
"""


client = client_fixture(queue="q")
start = start_fixture(APP, DELAYQ_TIMEOUT_GRACE="1s")


@pytest.mark.parametrize(("name", "threads"), [("ok", "1"), ("ok", "3"), ("aok", "1")])
def test_both_events_are_emitted_in_the_thread_and_context_of_the_job(
    client: DelayQ, start: Start, tmp_path: Path, name: str, threads: str
) -> None:
    ref = client.schedule(name, id="job-1", retention="1h")
    start("--queue", "q", "--threads", threads)
    assert client.wait(ref.id, timeout="60s") is not None
    first, handler, last = lines(tmp_path / "log")
    thread = first.split()[-1]
    assert first == f"started {name} 1 {thread}"
    assert handler == f"handler job-1 {thread}"
    assert last == f"ended {name} done NoneType job-1 {thread}"


def test_the_outcome_is_the_one_that_is_settled(client: DelayQ, start: Start, tmp_path: Path) -> None:
    bad = client.schedule("bad", id="bad")
    client.schedule("odd", id="odd")
    start("--queue", "q")
    ended = client.wait(bad.id, timeout="60s")
    assert ended is not None and ended.state == "failed"
    wait_until(lambda: (info := client.get("odd")) and info.attempts, patience=60)
    ends = [line.split()[:5] for line in lines(tmp_path / "log") if line.startswith(("ended", "hook"))]
    assert [one for one in ends if "odd" not in one] == [
        ["ended", "bad", "retried", "ValueError", "bad"],
        ["hook", "bad"],
        ["ended", "bad", "failed", "ValueError", "bad"],
    ]
    assert ["ended", "odd", "retried", "SystemExit", "odd"] in ends


def test_a_listener_that_hangs_is_killed_and_named(client: DelayQ, start: Start, tmp_path: Path) -> None:
    ref = client.schedule("hanging", {"is_broken": True})
    start("--queue", "q")
    ended = client.wait(ref.id, timeout="60s")
    assert ended is not None and ended.failure is not None
    assert ended.failure.message == (
        "The listener of JobEnded did not return before the timeout or deadline, so its process was killed."
    )


def test_a_job_that_is_done_stays_done_if_its_listener_hangs(client: DelayQ, start: Start, tmp_path: Path) -> None:
    ref = client.schedule("hanging", {"is_broken": False})
    start("--queue", "q")
    assert client.wait(ref.id, timeout="60s") is None
    assert [line for line in lines(tmp_path / "log") if line.startswith("handler")] == ["handler of hanging"]
    assert client.stats("q")[0].counters["acked"] == 1


def test_the_events_of_a_child_are_emitted_in_order(client: DelayQ, url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "closed").touch()
    client.schedule("ok")
    with workers_of(CHILDREN, tmp_path, url) as start:
        worker = start("--queue", "q,other")
        wait_until(lambda: len(lines(tmp_path / "loops")) == 3, patience=60)
        assert lines(log) == ["starting q other"]
        (tmp_path / "closed").unlink()
        wait_until(lambda: lines(log)[1:] == ["ran"], patience=60)
        client.pause("q")
        wait_until(lambda: lines(log)[2:] == ["paused q"], patience=60)
        client.pause_all()
        wait_until(lambda: lines(log)[3:] == ["paused other"], patience=60)
        (tmp_path / "closed").touch()
        client.resume("q")
        client.resume_all()
        wait_until(lambda: sorted(lines(log)[4:]) == ["resumed other", "resumed q"], patience=60)
        os.kill(worker.pid, signal.SIGTERM)
        wait_until(lambda: lines(log)[6:] == ["stopping"], patience=60)
        worker.wait(timeout=60)
