"""Both editions on one server: a client and a worker of each."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.first.speaker import Speaker
from tests.support.servers import private_server

FIRST_PYTHON: Final = Path(__file__).parents[2] / "build" / "first" / "bin" / "python"

APP: Final = """
import os
from delayq import job

def note(id):
    with open("ran", "a") as file:
        file.write(f"{id} {os.getppid()}\\n")

@job("note", queue="shared")
def run_note(id: str) -> str:
    note(id)
    return "noted " + id

@job("fragile", queue="shared", tries=1)
def run_fragile(id: str) -> None:
    if not os.path.exists("mended"):
        raise LookupError("not mended yet")
    note(id)
"""


@dataclass(frozen=True)
class Edition:
    """How the test speaks to one edition, and how it runs a worker of it."""

    name: str
    ask: Callable[..., Any]
    working: Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def first_python() -> Path:
    """The Python of the first edition. Without it, CI fails and a desk skips."""
    if not FIRST_PYTHON.exists():
        message = "the first edition is not installed: run `make first`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return FIRST_PYTHON


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a server for one test."""
    with private_server() as url:
        yield url


@pytest.fixture
def first(first_python: Path, address: str, tmp_path: Path) -> Iterator[Edition]:
    """The first edition, asked by lines of JSON."""
    words = [str(first_python), str(Path(__file__).parent / "speaker.py"), address]
    with subprocess.Popen(
        words, cwd=tmp_path, env=_environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def ask(verb: str, **said: Any) -> Any:
            assert process.stdin and process.stdout
            print(json.dumps({"verb": verb, **said}), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
            assert "error" not in answer, answer
            return answer["answer"]

        yield Edition("first", ask, lambda: _worker(str(first_python), address, tmp_path))
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def second(address: str, tmp_path: Path) -> Iterator[Edition]:
    """The second edition, in process."""
    speaker = Speaker(address)
    yield Edition("second", speaker.ask, lambda: _worker(sys.executable, address, tmp_path))
    speaker.close()


@contextmanager
def _worker(python: str, url: str, folder: Path) -> Iterator[None]:
    """Run a worker for the block, as a user would."""
    (folder / "shop.py").write_text(APP)
    words = [python, "-m", "delayq", "--url", url, "work", "--app", "shop", "--queue", "shared"]
    log = (folder / "worker.log").open("a")
    with log, subprocess.Popen(words, cwd=folder, env=_environment(), stdout=log, stderr=log) as worker:
        try:
            yield
            assert worker.poll() is None, "the worker ended by itself"
        finally:
            worker.terminate()
    assert worker.returncode == 0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "PYTHON"))}
