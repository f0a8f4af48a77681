"""Commands for development, with real workers: demo, listen, and down while a job runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

DELAYQ = [sys.executable, "-m", "delayq"]
APPLICATION = """
import time
from delayq import job

@job("note")
def note(n: int) -> None:
    with open("log", "a") as file:
        file.write(f"{VERSION} {n}\\n")
    time.sleep(0.1 if n else 60)
"""


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return complete_lines(log)


def test_the_demo_shows_everything_and_leaves_nothing_behind(project: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [*DELAYQ, "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for told in ("order 42 was not paid", "its job is cancelled", "attempt 3: sent", "order 44 was not paid"):
        assert told in ended.stdout
    assert "order 43 was not paid" not in ended.stdout
    assert "another process took over the job" in ended.stdout
    assert list(tmp_path.glob("delayq-demo-*")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_listen_runs_the_code_as_it_is_now(project: Path, number: signal.Signals) -> None:
    application = project / "app.py"
    application.write_text("VERSION = 1\n" + APPLICATION)
    listening = subprocess.Popen([*DELAYQ, "listen", "--app", "app"], stderr=subprocess.PIPE, text=True)
    try:
        with DelayQ() as client:
            client.schedule("note", {"n": 1})
            wait_until(lambda: lines(project) == ["1 1"])
            application.write_text("VERSION = 22\n" + APPLICATION)
            client.schedule("note", {"n": 2}, delay="1500ms")
            wait_until(lambda: lines(project) == ["1 1", "22 2"])
    finally:
        listening.send_signal(number)  # SIGINT is ignored in what a shell runs in the background
        told = listening.communicate(timeout=60)[1]
    assert "app.py has changed; restarting the worker" in told
    assert listening.returncode == 0


@pytest.mark.parametrize("first_stop", ["signal", "change"])
def test_a_second_signal_to_listen_ends_the_worker_at_once(project: Path, first_stop: str) -> None:
    application = project / "app.py"
    application.write_text("VERSION = 1\n" + APPLICATION)
    listening = subprocess.Popen([*DELAYQ, "listen", "--app", "app"], stderr=subprocess.PIPE, text=True)
    try:
        with DelayQ() as client:
            client.schedule("note", {"n": 0}, id="long")
            wait_until(lambda: lines(project) == ["1 0"])
        if first_stop == "change":
            application.write_text("VERSION = 22\n" + APPLICATION)
            time.sleep(3)
        listening.send_signal(signal.SIGTERM)
        time.sleep(2.5)
        assert listening.poll() is None
        listening.send_signal(signal.SIGTERM)
        told = listening.communicate(timeout=10)[1]
    finally:
        listening.kill()
        listening.wait()
    assert "the worker exits now, because SIGTERM came again" in told
    assert listening.returncode == 130


def test_down_leaves_running_jobs_alone(project: Path) -> None:
    (project / "app.py").write_text("VERSION = 1\n" + APPLICATION)
    worker = subprocess.Popen([*DELAYQ, "up", "--app", "app"], stderr=subprocess.DEVNULL)
    try:
        with DelayQ() as client:
            client.schedule("note", {"n": 0})
            wait_until(lambda: client.workers() and client.stats("default")[0].reserved)
        refused = subprocess.run([*DELAYQ, "down"], capture_output=True, text=True, check=False)
        assert (refused.returncode, "Jobs are running on the embedded server: 1." in refused.stderr) == (4, True)
        stopped = subprocess.run([*DELAYQ, "down", "--now", "--json"], capture_output=True, text=True, check=False)
        assert (stopped.returncode, '"stopped":true' in stopped.stdout) == (0, True)
    finally:
        worker.kill()
        worker.wait()
