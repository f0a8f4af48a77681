"""Handlers that fork, and workers without usable standard streams. Real workers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ

pytestmark = pytest.mark.processes

APP = """
import multiprocessing, os, signal, sys, time
from delayq import job

fork = multiprocessing.get_context("fork")

def keep(**declared):
    return job(queue="q", tries=1, timeout="20s", retention="1h", **declared)

@keep(name="pool")
def pool() -> str:
    with fork.Pool(2) as workers:
        waiting = workers.map_async(time.sleep, [0.01, 60])
        try:
            waiting.get(timeout=0.5)
        except multiprocessing.TimeoutError:
            pass
    return "left the pool"

@keep(name="process")
def process() -> int | None:
    child = fork.Process(target=time.sleep, args=(60,))
    child.start()
    time.sleep(0.2)
    child.terminate()
    child.join(10)
    return child.exitcode

@keep(name="own_handler")
def own_handler() -> str:
    process_id = os.fork()
    if process_id == 0:
        os._exit(signal.getsignal(signal.SIGUSR1) is not mark)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])

def mark(*_): ...

signal.signal(signal.SIGUSR1, mark)

@keep(name="exits")
def exits(code: int) -> int:
    process_id = os.fork()
    if process_id == 0:
        sys.exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])

@keep(name="raises")
def raises() -> int:
    process_id = os.fork()
    if process_id == 0:
        raise ValueError("in the copy")
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])

@keep(name="leaves")
def leaves() -> int | None:
    child = fork.Process(target=time.sleep, args=(600,))
    child.start()
    return child.pid

@keep(name="prints")
def prints() -> str:
    print("x" * 10)
    print("y" * 10, file=sys.stderr)
    return "printed"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def command(url: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--queue", "q", *options]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def results(client: DelayQ, *ids: str) -> dict[str, Any]:
    return {id: info.result if (info := client.get(id, queue="q")) else None for id in ids}


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_handler_may_fork(url: str, server: redis.Redis, shop: Path, threads: str) -> None:
    names = ["pool", "process", "own_handler", "raises", "leaves"]
    with DelayQ(url) as client:
        for name in names:
            client.schedule(name, id=name, queue="q")
        client.schedule("exits", {"code": 3}, id="exits", queue="q")
        ran = subprocess.run(
            command(url, "--threads", threads, "--stop-when-empty", "--grace", "60s"),
            cwd=shop,
            env=environment(),
            timeout=50,
            check=False,
        )
        found = results(client, *names, "exits")
    assert ran.returncode == 0
    left_over = found.pop("leaves")
    assert found == {"pool": "left the pool", "process": -15, "own_handler": 0, "raises": 1, "exits": 3}
    assert not Path(f"/proc/{left_over}").exists()


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&- <&-", ">/dev/full", ">/dev/full 2>/dev/full"])
def test_a_worker_needs_no_standard_streams(url: str, server: redis.Redis, shop: Path, redirect: str) -> None:
    with DelayQ(url) as client:
        for number in (1, 2):
            client.schedule("prints", id=f"prints-{number}", queue="q")
        words = " ".join(command(url, "--max-jobs", "1"))
        ran = subprocess.run(["sh", "-c", f"exec {words} {redirect}"], cwd=shop, env=environment(), check=False)
        states = [info.state if (info := client.get(f"prints-{number}", queue="q")) else None for number in (1, 2)]
    assert (ran.returncode, sorted(map(str, states))) == (0, ["completed", "ready"])
