"""The README's own commands and programs, run as a reader would, on the embedded server."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq.core import errors
from delayq.core.durations import duration_ms
from delayq.core.errors import DelayqError
from delayq.core.states import State
from delayq.redis.server_binary import ServerBinary
from tests.consumers.programs import Program
from tests.docs.manuals import ROOT
from tests.docs.pages import blocks, names, page, rows, section
from tests.docs.test_commands import commands
from tests.support.leftovers import pids_that_show
from tests.support.waiting import wait_until

README = page("README.md")
FIRST_SCREEN = README.partition("## How it works")[0]
CONSOLE = [block for block in blocks(README) if block.language == "console"]
PYTHON = {block.mark: block.text for block in blocks(README) if block.language == "python"}

Shell = Callable[..., Program]


@pytest.fixture
def folder(default_server: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's directory with the README's files in it. No server that was started from it outlives the test."""
    folder = Path(tempfile.mkdtemp(prefix="dq-readme-", dir="/tmp"))
    for name in ("DELAYQ_URL", "DELAYQ_APP", "DELAYQ_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", str(default_server.path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what people see must not depend on it
    for name, text in PYTHON.items():
        (folder / name).write_text(text)
    yield folder
    subprocess.run([sys.executable, "-m", "delayq", "down"], cwd=folder, capture_output=True, timeout=30, check=True)
    left = pids_that_show(str(folder))
    shutil.rmtree(folder)
    assert left == [], "a server was left running"


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    """Start a `delayq …` line; what still runs at the end is told to stop."""
    started: list[Program] = []

    def start(line: str) -> Program:
        own = folder / f"output-{len(started)}"
        own.mkdir()
        words = [sys.executable, "-m", *shlex.split(line, comments=True)]
        started.append(Program(words, own, dict(os.environ), cwd=folder))
        return started[-1]

    yield start
    for program in reversed(started):
        if program.process.poll() is None:
            program.terminate()
        program.kill()


def lines(block: int) -> list[str]:
    """The `delayq` lines of one console block."""
    return commands(CONSOLE[block])


def test_the_first_screen_has_the_two_commands_and_the_long_form() -> None:
    assert [line.partition("#")[0].strip() for line in CONSOLE[0].text.splitlines()] == ["make demo", "make test"]
    assert all(block.text in FIRST_SCREEN for block in CONSOLE[:2])
    assert [line.split()[1] for line in lines(1)] == ["up", "schedule", "work"]
    assert set(PYTHON) == {"myapp.py", "shop.py"}
    assert len(FIRST_SCREEN.splitlines()) <= 50


def test_make_knows_the_words() -> None:
    makefile = page("Makefile")
    for word in re.findall(r"^make (\w+)|`make (\w+)`", README, re.MULTILINE):
        assert re.search(rf"^{word[0] or word[1]}:", makefile, re.MULTILINE), word


def test_the_long_form(shell: Shell) -> None:
    """up, schedule 15 minutes ahead, work; then run-now, so as not to wait so long."""
    up, schedule, work = lines(1)
    server = shell(up)
    wait_until(lambda: "unix://" in server.output, timeout=20.0, what="the server is up")
    first = shell(schedule)
    assert first.process.wait(timeout=20.0) == 0, first.complaints
    assert first.output.split()[0] == "order-42"
    worker = shell(work)
    waiting = shell("delayq show order-42 --json")
    assert waiting.process.wait(timeout=20.0) == 0, waiting.complaints
    [job] = waiting.lines
    assert (job["state"], job["data"], job["name"]) == ("scheduled", {"order_id": 42}, "order.close")
    assert job["due_ms"] - job["created_ms"] == pytest.approx(900_000, abs=5_000)
    assert shell("delayq run-now order-42").process.wait(timeout=20.0) == 0
    wait_until(lambda: "order 42 was not paid in time" in worker.output, timeout=20.0, what="the handler ran")


def test_the_python_example(folder: Path) -> None:
    program = (folder / "shop.py").read_text() + "print(paid_in_time, q.get('order-42'), q.cancel('order-42'))\n"
    (folder / "shop.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.split() == ["True", "None", "unknown"], done.stderr


def test_what_to_do_when_a_job_does_not_run(shell: Shell) -> None:
    _, schedule, _ = lines(1)
    assert shell(schedule).process.wait(timeout=20.0) == 0
    doctor, why, show, stats = (shell(line) for line in lines(2))
    assert doctor.process.wait(timeout=20.0) == 1, "no worker runs, and doctor must say so"
    assert "worker" in doctor.output
    assert why.process.wait(timeout=20.0) == 0
    assert "It is not due yet" in why.output
    assert show.process.wait(timeout=20.0) == 0
    assert "scheduled" in show.output
    assert stats.process.wait(timeout=20.0) == 0
    assert [queue["scheduled"] for queue in json.loads(stats.output)["queues"]] == [1]


def test_the_states_are_those_of_the_code() -> None:
    said = {names(cells[0])[0] for cells in rows(README, "state")}
    assert said == set(State) - {State.ABSENT}


def test_the_exit_codes_are_those_of_the_errors() -> None:
    said = {int(cells[0]) for cells in rows(README, "exit code")}
    raised = {
        kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DelayqError)
    }
    named = re.search(r"0 done .*?interrupted", page("delayq/cli/ending.py"), re.DOTALL)
    assert named is not None
    assert said == {int(code) for code in re.findall(r"\b(\d+) ", named[0])}
    assert raised <= said


def test_the_durations_are_durations() -> None:
    said = names(README.partition("Durations:")[2].partition("; at most")[0])
    assert [duration_ms(text) for text in said[:3]] == [500, 90_000, 900_000]
    assert all(isinstance(duration_ms(text), int) for text in said)


def test_sections_can_be_found() -> None:
    assert "doctor" in section(README, "States, codes, durations")
