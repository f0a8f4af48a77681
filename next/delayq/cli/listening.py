"""`delayq listen`: a worker for development, which is started anew when the code changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

LOOK_EVERY: Final = 0.5
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
"""Folders in which no code of an application is looked for; nor in those whose name begins with a dot."""


def listen(folder: Path, command: Sequence[str]) -> int:
    """Run a worker by its command, and start it anew when a Python file below the folder changes.

    A worker that ended by itself is started again at the next change. TERM and Ctrl-C end both; returns the exit code
    of the worker.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    seen = snapshot(folder)
    worker = _start(command)
    try:
        while True:
            time.sleep(LOOK_EVERY)
            now = snapshot(folder)
            if now != seen:
                changed = sorted(path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))
                _tell(f"{os.path.relpath(changed[0])} has changed; the worker is started anew")
                seen = now
                _stop(worker)
                worker = _start(command)
    except KeyboardInterrupt:
        return _stop(worker)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the time and the size of every Python file below a folder."""
    return {entry.path: (status.st_mtime_ns, status.st_size) for entry, status in _python_files(str(folder))}


def _python_files(folder: str) -> Iterator[tuple["os.DirEntry[str]", os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # it was removed meanwhile
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED and not entry.name.startswith("."):
                yield from _python_files(entry.path)
        elif entry.name.endswith(".py"):
            try:
                yield entry, entry.stat()
            except FileNotFoundError:
                continue


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start the worker in a group of its own: Ctrl-C reaches this process alone, which passes it on once.

    No bytecode is written: Python would run an old one after two changes within a second.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "delayq", *command],
        start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _stop(worker: "subprocess.Popen[bytes]") -> int:
    if worker.poll() is None:
        worker.terminate()
    return worker.wait()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _tell(what: str) -> None:
    print(f"delayq: {what}", file=sys.stderr, flush=True)
