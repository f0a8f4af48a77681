"""Runs the programs of consumers/ as a user does: as copies, in processes of their own."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.support.lines import complete_lines

CONSUMERS: Final = Path(__file__).parents[2] / "consumers"
REDIGO: Final = Path("/usr/share/gocode/src/github.com/gomodule/redigo")
IS_CI: Final = os.environ.get("CI") == "true"


class Program:
    """A running program, and what it has printed."""

    def __init__(self, words: Sequence[str], folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("a") as out, log.with_suffix(".err").open("a") as err:
            self._process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=err)

    @property
    def lines(self) -> list[str]:
        return complete_lines(self._log)

    @property
    def errors(self) -> str:
        return self._log.with_suffix(".err").read_text()

    def end(self) -> int:
        """Ask the program to end, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=20)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Programs:
    """Starts programs in one folder, with one server."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = {
            **os.environ,
            "DELAYQ_URL": url,
            "REDIS_URL": url,
            "PYTHONPATH": str(CONSUMERS.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def start(self, *words: str, log: str, **environment: str) -> Program:
        """Start a program that runs until the end of the test, which kills it."""
        program = Program(words, self.folder, self.folder / f"{log}.log", {**self._environment, **environment})
        self._stack.callback(program.kill)
        return program

    def start_delayq(self, *words: str, log: str = "delayq", **environment: str) -> Program:
        """Start a command of delayq. It gets SIGTERM at the end of the test, so that its own processes end too."""
        program = self.start(sys.executable, "-m", "delayq", *words, log=log, **environment)
        self._stack.callback(program.end)
        return program

    def run(self, *words: str, seconds: float = 60, **environment: str) -> str:
        """Run a program to its end, at most so many seconds, and return what it printed."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


def missing(what: str, *, is_needed: bool = False) -> NoReturn:
    """Skip the test. In CI, fail instead if CI needs the missing program."""
    if IS_CI and is_needed:
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


def php() -> list[str]:
    """Return the command of the PHP producer, or skip the test."""
    program = shutil.which("php")
    if program is None:
        missing("php")
    if "redis" not in subprocess.run([program, "-m"], capture_output=True, text=True, check=True).stdout.split():
        missing("the extension redis of php")
    return [program, str(CONSUMERS / "producers" / "producer.php")]


def node() -> str:
    """Return the path of Node, or skip the test."""
    program = shutil.which("node")
    if program is None or shutil.which("npm") is None:
        missing("node or npm", is_needed=True)
    return program


@contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Let one process of the test run fill a shared folder. The value is True for this process."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not (folder / "is-made").exists()
        (folder / "is-made").touch()


def npm_ci(folder: Path) -> Path:
    """Install the packages of node_stream into a shared folder, and return the folder. It has both Node programs."""
    node()
    with made_once(folder) as is_first:
        if is_first:
            shutil.copytree(CONSUMERS / "node_stream", folder, dirs_exist_ok=True)
            shutil.copy(CONSUMERS / "producers" / "producer.mjs", folder)
            words = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--fetch-retries=1"]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(f"what `npm ci` installs ({done.stderr.strip()})", is_needed=True)
    return folder


def go_build(folder: Path) -> Path:
    """Build the Go producer into a shared folder, and return its path, or skip the test."""
    if shutil.which("go") is None or not REDIGO.exists():
        missing("go or golang-github-gomodule-redigo-dev")
    with made_once(folder) as is_first:
        if is_first:
            words = ["go", "build", "-o", str(folder / "producer"), str(CONSUMERS / "producers" / "producer.go")]
            environment = {"HOME": str(folder), **os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
            subprocess.run(words, env=environment, check=True)
    return folder / "producer"


def optional(command: Callable[[], list[str]]) -> list[str] | None:
    """Return a command, or None if its program is missing."""
    try:
        return command()
    except pytest.skip.Exception:
        return None
