"""What a test leaves running: child processes and threads."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

# Helpers of the standard library and of this suite that live until the interpreter ends, and are started by whoever
# needs them first.
LASTING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "tests.support.warm")


@dataclass(frozen=True, slots=True)
class Living:
    """The children and threads of this process at one moment."""

    children: frozenset[int]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> Living:
        return cls(frozenset(_children()), frozenset(threading.enumerate()))

    def new_since(self, before: Living, *, known: set[int]) -> list[str]:
        """In words: what lives now and did not live `before`. `known` children are somebody's to end later."""
        children = sorted(self.children - before.children - known)
        threads = sorted(thread.name for thread in self.threads - before.threads if thread.is_alive())
        shown = [(pid, command_of(pid)) for pid in children]
        return [
            *(f"process {pid}: {command}" for pid, command in shown if command and not _is_lasting(command)),
            *(f"thread {name}" for name in threads),
        ]


def _children() -> list[int]:
    """Direct children that live; one that has ended and was not waited for does not count."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if lists:
        return [int(pid) for found in lists for pid in _read(found).split()]
    shown = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in shown.splitlines())
    return [int(pid) for pid, parent in pairs if int(parent) == os.getpid()]


def command_of(pid: int) -> str:
    """Empty for a process that is gone or ended; its name in brackets while it becomes another program, or ends."""
    if Path("/proc/self").exists():
        words = _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()
        name, _, state = _read(Path(f"/proc/{pid}/stat")).partition("(")[2].rpartition(") ")
        return words or (f"[{name}]" if state and state[0] not in "ZX" else "")
    shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_lasting(command: str) -> bool:
    return any(name in command for name in LASTING)


def pids_that_show(word: str) -> list[int]:
    """All processes of this machine, children or not, with `word` in their command line."""
    if Path("/proc/self").exists():  # a bare Linux has no `ps`
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if word in command_of(pid)]
    shown = subprocess.run(["ps", "-ww", "-axo", "pid=,command="], capture_output=True, text=True, check=True).stdout
    return [int(line.split(None, 1)[0]) for line in shown.splitlines() if word in line]
