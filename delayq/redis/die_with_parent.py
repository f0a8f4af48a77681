"""Become another program, one that ends when the process that started it does. Linux only.

Run as a file, with the standard library alone: `python -I -S die_with_parent.py PARENT_PID PROGRAM [ARGUMENT …]`.
A program of its own because the other way, code between fork and exec, may deadlock in a parent that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def become(parent: int, program: list[str]) -> None:
    """Replace this process by `program`. TERM, not KILL: the server then writes out what it has."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # A parent that died before the call above sends no signal any more.
    if os.getppid() != parent:
        sys.exit(f"the parent, process {parent}, has ended")
    # The parent may have blocked signals for a thread of its own; a blocked TERM would never arrive.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execv(program[0], program)


def ending_with_us(program: Sequence[str]) -> list[str]:
    """The command that runs `program` so that it ends with this thread's process; on Linux, elsewhere just itself."""
    if sys.platform != "linux":
        return list(program)
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *program]


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
