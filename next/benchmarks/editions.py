"""The two editions: where the Python of each stands, and how a program of ours is run in it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
FIRST_PYTHON: Final = PACKAGE.parent / "build" / "first" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Edition:
    """An edition of delayq, installed in an environment of its own."""

    name: str
    python: Path
    work_options: str = ""
    """More words for `delayq work`."""


def both_editions() -> tuple[Edition, Edition]:
    """Return the first and the second edition; ends the program when the first is not installed.

    The first one would log each job that ends; `--quiet` makes its worker do what that of the second one does.
    """
    if not FIRST_PYTHON.exists():
        sys.exit("benchmarks: the first edition is not installed. Run `make first`.")
    return Edition("first", FIRST_PYTHON, work_options="--quiet"), Edition("second", Path(sys.executable))


@contextmanager
def neutral_folder() -> Iterator[Path]:
    """Give a folder that holds the package `benchmarks` and nothing else.

    `python -m` looks into the current folder first. In the checkout, both editions would find the second one there.
    """
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name:
        folder = Path(name)
        (folder / "benchmarks").symlink_to(PACKAGE, target_is_directory=True)
        yield folder


def environment(edition: Edition) -> dict[str, str]:
    """Return the environment without what would configure delayq or Python, and with what workers need."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "PYTHON"))}
    return {**kept, "BENCH_WORK_OPTIONS": edition.work_options}


def end_in_order_when_told() -> None:
    """Let SIGTERM end the program as an exception does, so that servers and workers are ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def run_measure(edition: Edition, measure: str, url: str) -> str:
    """Run one measure in an edition, and return what it prints."""
    with neutral_folder() as folder:
        words = [str(edition.python), "-m", "benchmarks.measure", measure, url]
        with subprocess.Popen(words, cwd=folder, env=environment(edition), stdout=subprocess.PIPE, text=True) as run:
            try:
                printed, _ = run.communicate()
            finally:
                run.terminate()  # a measure that is broken off ends its worker
    if run.returncode:
        sys.exit(f"benchmarks: {measure} ended with {run.returncode} in the {edition.name} edition.")
    return printed
