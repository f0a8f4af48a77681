"""Handlers that do what no handler should, in each executor, with a timeout and without: only their own job suffers.

Each worker has the jobs of one executor, and 50 innocent ones for each that is not. Afterwards every innocent job has
run, none of them failed, and each other one ended as it should.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, JobSpec
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

INNOCENT: Final = 50

APP: Final = """
import asyncio, ctypes, os, signal, sys, threading, time
from delayq import job

log = os.open(os.environ["HANDLERS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
IS_ASYNC = os.environ["EXECUTOR"] == "event loop"

def declare(name, **options):
    def decorate(function):
        if not IS_ASYNC:
            return job(name, queue="q", tries=2, backoff="100ms", **options)(function)
        async def handler(n: int) -> None:
            function(n)
        return job(name, queue="q", tries=2, backoff="100ms", **options)(handler)
    return decorate

@declare("innocent")
def innocent(n: int) -> None:
    os.write(log, f"{n}\\n".encode())

@declare("raises")
def raises(n: int) -> None:
    raise ValueError("no")

@declare("exits")
def exits(n: int) -> None:
    sys.exit("reason")

@declare("recurses")
def recurses(n: int) -> None:
    def deeper() -> None:
        deeper()
    deeper()

@declare("memory")
def memory(n: int) -> None:
    raise MemoryError

@declare("dies")
def dies(n: int) -> None:
    os._exit(3)

@declare("kills.itself")
def kills_itself(n: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@declare("forks")
def forks(n: int) -> None:
    if os.fork():
        os.wait()

@declare("starts.threads")
def starts_threads(n: int) -> None:
    threading.Thread(target=time.sleep, args=(100,)).start()

@declare("hangs.in.C", timeout="700ms")
def hangs_in_c(n: int) -> None:
    ctypes.CDLL(None).sleep(100)

@declare("holds.the.GIL", timeout="700ms")
def holds_the_gil(n: int) -> None:
    ctypes.PyDLL(None).sleep(100)

@declare("swallows", timeout="700ms")
def swallows(n: int) -> None:
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass

@declare("sleeps", timeout="700ms")
def sleeps(n: int) -> None:
    time.sleep(100)

if IS_ASYNC:
    @job("leaves.tasks", queue="q")
    async def leaves_tasks(n: int) -> None:
        asyncio.create_task(asyncio.sleep(100))

    @job("awaits", queue="q", tries=2, backoff="100ms", timeout="700ms")
    async def awaits(n: int) -> None:
        await asyncio.sleep(100)
"""


@dataclass(frozen=True)
class Expected:
    """How the job of a handler ends. `attempts`: those that are written down with a failed job."""

    name: str
    state: str
    attempts: int = 2
    recoveries: int = 0


ALL: Final = [
    Expected("raises", "failed"),
    Expected("exits", "failed"),
    Expected("recurses", "failed"),
    Expected("memory", "failed"),
    Expected("dies", "failed", attempts=0, recoveries=4),
    Expected("kills.itself", "failed", attempts=0, recoveries=4),
    Expected("forks", "done"),
    Expected("starts.threads", "done"),
    Expected("hangs.in.C", "failed"),
    Expected("holds.the.GIL", "failed"),
    Expected("swallows", "failed"),
    Expected("sleeps", "failed"),
]
ASYNC_ONLY: Final = [Expected("leaves.tasks", "done"), Expected("awaits", "failed")]


@pytest.mark.parametrize(("executor", "threads"), [("inline", 1), ("threads", 4), ("event loop", 4)])
def test_only_the_job_of_such_a_handler_suffers(executor: str, threads: int, tmp_path: Path) -> None:
    (tmp_path / "handlers_app.py").write_text(APP)
    log = tmp_path / "log"
    cases = ALL + (ASYNC_ONLY if executor == "event loop" else [])
    with private_server() as url, DelayQ(url) as client:
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DELAYQ_URL": url,
            "HANDLERS_LOG": str(log),
            "EXECUTOR": executor,
            "DELAYQ_LEASE": "2s",
        }
        words = [sys.executable, "-m", "delayq", "work", "--app", "handlers_app", "--threads", str(threads)]
        with subprocess.Popen(words, cwd=tmp_path, env=environment) as worker:
            try:
                check_all(client, cases, log, is_alone=threads == 1)
            finally:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(timeout=60) == 0


def check_all(client: DelayQ, cases: list[Expected], log: Path, *, is_alone: bool) -> None:
    number = 0
    for case in cases:
        specs = [JobSpec(name=case.name, id=case.name, data={"n": 0}, queue="q")]
        specs += [
            JobSpec(name="innocent", id=f"i-{number + n}", data={"n": number + n}, queue="q") for n in range(INNOCENT)
        ]
        number += INNOCENT
        client.schedule_many(specs)
    wait_until(lambda: is_settled(client), patience=150)
    ran = sorted(int(line) for line in log.read_text().splitlines())
    assert sorted(set(ran)) == list(range(number))
    for case in cases:
        info = client.get(case.name, queue="q")
        found = ("done", 2, 0) if info is None else (info.state, info.attempts, info.recoveries)
        # What ran in a process that another job ended was charged with a recovery; alone in its process it is not.
        recoveries = case.recoveries if is_alone else found[2]
        assert found == (case.state, case.attempts, recoveries), case
    assert {job.name for job in client.iter_jobs("failed", queue="q")} == {
        case.name for case in cases if case.state == "failed"
    }


def is_settled(client: DelayQ) -> bool:
    (stats,) = client.stats("q")
    return not (stats.scheduled or stats.ready or stats.reserved)
