"""Runs the programs and commands of a page, as a reader would: from top to bottom, in a new project.

    ```python      a block whose first line is `# shop.py` is written to that file; any other is run by Python
    ```toml        is written to the file that its first line names
    ```console     lines with `$` are commands; what stands below one must be printed by it, in this order

`…` stands for any text. `delayq work`, `up` and `listen` run until all of that was printed, and get Ctrl-C then.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.waiting import wait_until

DOCS: Final = Path(__file__).parents[2] / "docs"
_BLOCK: Final = re.compile(r"^```(python|console|toml)\n(.*?)^```", re.M | re.S)
_FILE: Final = re.compile(r"# (\S+\.(?:py|toml))\n")
_LASTING: Final = re.compile(r"delayq (work|up|listen)\b(?!.*--(once|stop-when-empty))")
_SPACES: Final = re.compile(" +")
_SECONDS: Final = 60


def run_page(page: Path, folder: Path) -> None:
    """Run all blocks of a page; raises AssertionError with the command that did something else."""
    for kind, text in _BLOCK.findall(page.read_text()):
        named = _FILE.match(text)
        if kind == "console":
            for command, expected in _commands(text):
                _run(command, expected, folder)
        elif named:
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif kind == "python":
            _run_python(text, folder)


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *expected = re.sub(r"\\\n", "", part).splitlines()
        yield command, [line for line in expected if line.strip()]


def _run(command: str, expected: list[str], folder: Path) -> None:
    if _LASTING.match(command):
        _run_lasting(command, expected, folder)
        return
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert _holds(expected, done.stdout), f"$ {command}\n{done.stdout}\nexpected:\n" + "\n".join(expected)


def _run_lasting(command: str, expected: list[str], folder: Path) -> None:
    """Run a command in the background until it has printed what is expected."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=printed.extend, args=(process.stdout,))
    reader.start()
    try:
        wait_until(lambda: _holds(expected, "".join(printed)) or process.poll() is not None, patience=_SECONDS)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=_SECONDS)
        reader.join()
        process.stdout.close()
        told = "".join(printed)
    assert _holds(expected, told), f"$ {command}\n{told}\nexpected:\n" + "\n".join(expected)


def _run_python(program: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"


def _holds(expected: list[str], printed: str) -> bool:
    """Whether the lines were printed in this order; others may stand between them."""
    wanted = [_SPACES.sub(" ", line).strip().split("…") for line in expected]
    pattern = ".*".join(f"^.*?{'.*?'.join(map(re.escape, parts))}.*?$" for parts in wanted)
    return re.search(pattern, _SPACES.sub(" ", printed), re.M | re.S) is not None


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
