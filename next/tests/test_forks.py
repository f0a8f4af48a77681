"""Handlers that fork, and workers without usable standard streams. Real workers."""

import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ, JobSpec
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

APP = """
import atexit, multiprocessing, os, signal, sys, time
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
def prints(size: int = 10, hangs: bool = False) -> str:
    print("x" * size)
    print("y" * 10, file=sys.stderr)
    if hangs:
        atexit.register(time.sleep, 1000)
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


OTHER_APP = """
import os, signal, subprocess, sys, time
from delayq import job

print_action = "import signal; print(signal.getsignal(signal.SIGUSR1).name)"

@job("usr1", queue="q", retention="1h")
def usr1() -> list[str]:
    program = subprocess.run([sys.executable, "-c", print_action], stdout=subprocess.PIPE, text=True).stdout.strip()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, signal.Signals.SIGUSR1.name.encode() if signal.getsignal(signal.SIGUSR1) else b"SIG_DFL")
        os._exit(0)
    return [program, os.read(reader, 100).decode()]

@job("long", queue="q", timeout="60s")
def long() -> None:
    os.write(os.open("starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"long\\n")
    while not os.path.exists("end"):
        time.sleep(0.05)

@job("noise", queue="q")
def noise() -> None: ...
"""


def test_usr1_has_its_default_effect_in_programs_and_forks_of_a_handler(
    url: str, server: redis.Redis, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(OTHER_APP)
    with DelayQ(url) as client:
        client.schedule("usr1", id="usr1", queue="q")
        subprocess.run(command(url, "--stop-when-empty"), cwd=tmp_path, env=environment(), timeout=50, check=True)
        assert results(client, "usr1") == {"usr1": ["SIG_DFL", "SIG_DFL"]}


def test_a_worker_whose_log_nobody_reads_keeps_its_leases(url: str, server: redis.Redis, tmp_path: Path) -> None:
    """The pipe of stderr gets full. Lines are dropped, so that the supervisor goes on."""
    (tmp_path / "app.py").write_text(OTHER_APP)
    reader, writer = os.pipe()
    fast = {**environment(), "DELAYQ_LEASE": "1s"}
    words = command(url, "--processes", "2", "--log-jobs")
    with DelayQ(url) as client:
        worker = subprocess.Popen(words, cwd=tmp_path, env=fast, stdout=writer, stderr=writer)
        try:
            client.schedule("long", id="long", queue="q")
            wait_until((tmp_path / "starts").exists)
            client.schedule_many([JobSpec("noise", queue="q") for _ in range(1_000)])
            wait_until(lambda: client.stats("q")[0].ready == 0, patience=60)
            assert not select.select([], [writer], [], 0)[1]  # the pipe is full
            other = subprocess.Popen(command(url), cwd=tmp_path, env=fast, stderr=subprocess.DEVNULL)
            try:
                time.sleep(3)  # three leases
                (tmp_path / "end").touch()
                wait_until(lambda: client.get("long", queue="q") is None)
            finally:
                end_worker(other)
            assert complete_lines(tmp_path / "starts") == ["long"]
            worker.terminate()
            assert worker.wait(timeout=60) == 0
        finally:
            end_worker(worker)
    os.close(writer)
    os.close(reader)


@pytest.mark.parametrize(
    ("data", "free"),
    [({}, 0), ({"size": 8_000}, 4_096), ({"hangs": True}, 0)],
    ids=["full", "room for a part of the output", "full, and an exit hook hangs"],
)
def test_a_worker_with_a_full_pipe_runs_its_job_and_ends(
    url: str, server: redis.Redis, shop: Path, data: dict[str, Any], free: int
) -> None:
    """It ends although nobody reads its first line, the output of its handler, or the stacks of a child that hangs."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    os.read(reader, free)
    with DelayQ(url) as client:
        client.schedule("prints", data, id="prints-1", queue="q")
        words = command(url, "--max-jobs", "1", "--grace", "1s")
        worker = subprocess.Popen(
            words, cwd=shop, env=environment(), stdout=writer, stderr=subprocess.DEVNULL if free else writer
        )
        try:
            assert worker.wait(timeout=60) == 0
        finally:
            end_worker(worker)
        assert results(client, "prints-1") == {"prints-1": "printed"}
    os.close(writer)
    os.close(reader)
