"""`delayq listen`: a worker for development that is restarted when the code changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

LOOK_EVERY: Final = 0.5
"""Seconds between two checks for changed files."""

SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
"""Folders without application code. Folders whose name begins with a dot are skipped too."""


def listen(folder: Path, command: Sequence[str]) -> int:
    """Run a worker by its command, and restart it when a Python file below the folder changes.

    A worker that has exited is started again at the next change. TERM, HUP, QUIT and Ctrl-C stop the worker,
    and the function returns the exit code of the worker. A second one of these signals, at least 2 s later, ends the
    worker at once.
    """
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)  # Windows has only the first one
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _interrupt)
    seen = snapshot(folder)
    worker = _start(command)
    is_stopping = False
    try:
        while True:
            time.sleep(LOOK_EVERY)
            now = snapshot(folder)
            if now != seen:
                changed = sorted(path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))
                _tell(f"{os.path.relpath(changed[0])} has changed; restarting the worker")
                seen = now
                worker.terminate()
                is_stopping = True
                worker.wait()
                worker, is_stopping = _start(command), False
    except KeyboardInterrupt:
        if not is_stopping:
            worker.terminate()
        return _wait(worker)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the modification time and size of each Python file below a folder."""
    return {entry.path: (status.st_mtime_ns, status.st_size) for entry, status in _python_files(str(folder))}


def _python_files(folder: str) -> Iterator[tuple["os.DirEntry[str]", os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # the folder was removed in the meantime, or is not readable
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
    """Start the worker in its own session, so that Ctrl-C does not reach the worker directly.

    On Ctrl-C, only this process gets the signal, and sends TERM to the worker. Otherwise, the worker would get INT from
    the terminal as well as TERM from this process. Bytecode is not written, because Python would run stale bytecode
    after two changes within a second.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "delayq", *command],
        start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _wait(worker: "subprocess.Popen[bytes]") -> int:
    """Wait for a worker that is stopping. At each further signal, send TERM again.

    The worker ignores a TERM that comes less than 2 s after the first one.
    """
    while True:
        try:
            return worker.wait()
        except KeyboardInterrupt:
            worker.terminate()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _tell(what: str) -> None:
    print(f"delayq: {what}", file=sys.stderr, flush=True)
