"""Real workers: one test for each promise about processes. `make test` runs them alone, after the rest."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest
import redis

from delayq import DelayQ
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until
from tests.support.workers import children_of, end_worker

pytestmark = pytest.mark.processes

APP = """
import os, time
from delayq import job

@job("stamp", queue="q")
def stamp(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{time.time()}\\n")

@job("slow", queue="q")
def slow(path: str, seconds: float) -> None:
    with open(path, "a") as file:
        file.write(f"started {os.getpid()}\\n")
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write("ended\\n")

@job("steps", queue="q")
def steps(path: str, steps: int) -> None:
    with open(path, "a") as file:
        file.write(f"started {os.getpid()}\\n")
    for _ in range(steps):
        time.sleep(0.05)
    with open(path, "a") as file:
        file.write("ended\\n")
"""


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url) as client:
        yield client


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(url: str, client: DelayQ, tmp_path: Path) -> Iterator[Start]:
    """Start workers with the given options; `before` are the words of a program that starts the worker."""
    (tmp_path / "app.py").write_text(APP)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with ExitStack() as stack:

        def start(
            *options: str,
            before: tuple[str, ...] = (),
            program: tuple[str, ...] = ("-m", "delayq"),
            stderr: IO[bytes] | None = None,
        ) -> subprocess.Popen[bytes]:
            words = [*before, sys.executable, *program, "--url", url, "work", "--app", "app", "--queue", "q"]
            process = subprocess.Popen([*words, *options], cwd=tmp_path, env=environment, stderr=stderr)
            stack.callback(end_worker, process)
            return process

        yield start


@pytest.fixture
def worker(start: Start) -> subprocess.Popen[bytes]:
    return start()


def lines(path: Path) -> list[str]:
    return complete_lines(path)


def test_a_job_runs_when_it_is_due_and_not_before(
    worker: subprocess.Popen[bytes], client: DelayQ, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    refs = [client.schedule("stamp", {"path": str(log)}, delay=f"{n * 300}ms", queue="q") for n in (3, 1, 2)]
    wait_until(lambda: len(lines(log)) == 3)
    dues = sorted(ref.due_ms or 0 for ref in refs)
    assert all(float(ran) * 1000 >= due for ran, due in zip(lines(log), dues, strict=True))


def test_a_killed_child_costs_its_running_job_one_recovery(
    worker: subprocess.Popen[bytes], client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    os.kill(int(lines(log)[0].split()[1]), signal.SIGKILL)
    wait_until(lambda: lines(log)[-1] == "ended")
    assert len(lines(log)) == 3
    assert server.hget("delayq:{q}:meta", "reclaimed_total") == "1"


def test_a_suspended_worker_costs_its_job_no_attempt_though_the_child_wakes_up_first(
    worker: subprocess.Popen[bytes], client: DelayQ, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client.schedule("steps", {"path": str(log), "steps": 30}, queue="q", id="steps", timeout="3s", retention="1h")
    wait_until(lambda: len(lines(log)) == 1)
    child = int(lines(log)[0].split()[1])
    for process_id in (worker.pid, child):
        os.kill(process_id, signal.SIGSTOP)
    time.sleep(4)
    os.kill(child, signal.SIGCONT)
    time.sleep(0.7)
    os.kill(worker.pid, signal.SIGCONT)
    info = client.wait("steps", queue="q", timeout="20s")
    assert info is not None and info.envelope is not None
    assert (info.state, info.envelope.attempts, lines(log)[1:]) == ("completed", 0, ["ended"])


def test_sigterm_ends_an_idle_worker_at_once(start: Start, client: DelayQ, tmp_path: Path) -> None:
    worker, log = start("--sleep", "1000s"), tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0}, queue="q")
    wait_until(lambda: len(lines(log)) == 2 and not client.stats("q")[0].reserved)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0


def test_sigterm_lets_what_runs_finish(
    worker: subprocess.Popen[bytes], client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=5) == 0
    assert lines(log)[-1] == "ended"
    (stats,) = client.stats("q")
    assert (stats.ready, stats.reserved) == (1, 0)


@pytest.mark.parametrize(
    ("before", "ended"), [(("env", "--default-signal=HUP"), True), (("nohup",), False)], ids=["terminal", "nohup"]
)
def test_a_hangup_stops_a_worker_unless_it_is_ignored(
    start: Start, client: DelayQ, tmp_path: Path, *, before: tuple[str, ...], ended: bool
) -> None:
    worker, log = start(before=before), tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    worker.send_signal(signal.SIGUSR1)
    worker.send_signal(signal.SIGHUP)
    if not ended:
        wait_until(lambda: len(lines(log)) == 2)
        client.schedule("slow", {"path": str(log), "seconds": 0}, queue="q")
        wait_until(lambda: len(lines(log)) == 4)
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert lines(log)[-1] == "ended"


def test_what_runs_at_the_end_of_the_grace_is_handed_back_without_an_attempt(
    start: Start, client: DelayQ, tmp_path: Path
) -> None:
    worker, log = start("--grace", "1s"), tmp_path / "log"
    ref = client.schedule("slow", {"path": str(log), "seconds": 100}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert_handed_back(client, ref.id)


def test_the_same_signal_again_means_leave_now(start: Start, client: DelayQ, tmp_path: Path) -> None:
    worker, log = start("--grace", "1000s"), tmp_path / "log"
    ref = client.schedule("slow", {"path": str(log), "seconds": 1000}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    worker.send_signal(signal.SIGTERM)
    time.sleep(2.5)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 130
    assert_handed_back(client, ref.id)
    assert client.workers() == []


def test_two_signals_of_one_stop_are_no_impatience(start: Start, client: DelayQ, tmp_path: Path) -> None:
    worker, log = start("--grace", "1000s"), tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 4}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    worker.send_signal(signal.SIGINT)
    time.sleep(2.5)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert lines(log)[-1] == "ended"


def test_a_worker_that_is_process_1_of_a_container_stops_in_good_order(
    start: Start, client: DelayQ, tmp_path: Path
) -> None:
    container = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*container, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this system lets nobody make a pid namespace")
    worker, log = start(before=container), tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 0.5}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    (process_1,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    os.kill(int(process_1), signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert lines(log)[-1] == "ended"


HANGING_LOOKUP = """
import ctypes, socket
from delayq.__main__ import main

lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)

def getaddrinfo(*_):
    print("looks up", flush=True)
    while True:
        libc.pthread_mutex_lock(lock)

socket.getaddrinfo = getaddrinfo
main()
"""


def test_a_signal_ends_a_mover_during_a_name_lookup() -> None:
    command = [sys.executable, "-c", HANGING_LOOKUP, "move"]
    environment = {**os.environ, "DELAYQ_URL": "redis://redis.example"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as mover:
        try:
            assert mover.stdout is not None
            assert mover.stdout.readline() == b"looks up\n"
            time.sleep(0.2)
            mover.send_signal(signal.SIGTERM)
            assert mover.wait(timeout=10) == 0
        finally:
            mover.kill()


def test_a_worker_stops_while_redis_hangs_and_loses_nothing(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    worker, log = start("--grace", "4s"), tmp_path / "log"
    ref = client.schedule("slow", {"path": str(log), "seconds": 1}, queue="q")
    redis_process = server.info("server")["process_id"]
    wait_until(lambda: len(lines(log)) == 1)
    os.kill(redis_process, signal.SIGSTOP)
    try:
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(timeout=30)
    finally:
        os.kill(redis_process, signal.SIGCONT)
    assert code == 0
    assert lines(log)[-1] == "ended"
    found = client.get(ref.id, queue="q")
    assert found is None or found.state == "reserved"  # the ack that was sent may have been carried out by now


def assert_handed_back(client: DelayQ, id: str) -> None:
    """Check that a job is free again, without an attempt and without a recovery."""
    found = client.get(id, queue="q")
    assert found is not None
    assert (found.state in ("ready", "scheduled"), found.attempts) == (True, 0)  # due now: a mover makes it ready
    counters = client.stats("q")[0].counters
    assert (counters["released"] + counters["handed_back"], counters["reclaimed"]) == (1, 0)


def test_a_changed_password_is_logged_once_and_the_worker_works_when_it_is_changed_back(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log, told = tmp_path / "log", tmp_path / "told"
    with told.open("wb") as stderr:
        worker = start(stderr=stderr)
    client.schedule("stamp", {"path": str(log)}, queue="q")
    wait_until(lambda: len(lines(log)) == 1)
    server.config_set("requirepass", "new")
    try:
        server.client_kill_filter(_type="normal", skipme=True)
        server.client_kill_filter(_type="pubsub")
        wait_until(lambda: len(lines(told)) >= 2)
        time.sleep(6)
    finally:
        server.config_set("requirepass", "")
    errors = [line for line in lines(told) if " ERROR " in line]
    refusals = [line for line in errors if "refused the login" in line]
    assert 1 <= len(refusals) <= 3  # one of each process: supervisor, child, sidecar
    assert len(errors) - len(refusals) <= 1  # the lost connection of the waiting child
    client.schedule("stamp", {"path": str(log)}, queue="q")
    wait_until(lambda: len(lines(log)) == 2)
    assert worker.poll() is None


def test_a_worker_whose_login_is_refused_leaves_in_good_order_with_exit_code_2(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    program = "import sys, delayq.core.outages as o; o.LOGIN_PATIENCE = 1; from delayq.__main__ import main; main()"
    worker = start(program=("-c", program))
    client.schedule("slow", {"path": str(log), "seconds": 0}, queue="q")
    wait_until(lambda: len(lines(log)) == 2)
    server.config_set("requirepass", "new")
    try:
        server.client_kill_filter(_type="normal", skipme=True)
        assert worker.wait(timeout=60) == 2
    finally:
        server.config_set("requirepass", "")


def test_a_worker_without_the_system_calls_of_linux_is_refused_in_one_sentence(tmp_path: Path) -> None:
    program = "import signal; del signal.sigtimedwait; from delayq.__main__ import main; main()"
    words = [sys.executable, "-c", program, "work", "--app", "app"]
    ended = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("delayq: Workers do not run on this platform (linux)")


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_all_processes_of_a_worker_ends_no_running_job(
    start: Start, client: DelayQ, tmp_path: Path, number: signal.Signals
) -> None:
    worker, log = start(), tmp_path / "log"
    client.schedule("slow", {"path": str(log), "seconds": 1.0}, queue="q", id="slow", retention="1h")
    wait_until(lambda: len(lines(log)) == 1)
    for process_id in (*children_of(worker.pid), worker.pid):
        os.kill(process_id, number)
    wait_until(lambda: lines(log)[-1] == "ended")
    if number == signal.SIGUSR2:
        worker.send_signal(signal.SIGCONT)
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    job = client.get("slow", queue="q")
    assert job is not None
    assert (job.state, len(lines(log))) == ("completed", 2)
