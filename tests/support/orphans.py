"""Who is left behind: while `adopting`, this process is the parent of every orphan below it, as a container's first is.

A worker that leaves a child behind, alive or unburied, leaves it to the test, which sees it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`, unburied ones too."""
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def zombies(pid: int) -> list[int]:
    """Below a process, those that ended and nobody waited for."""
    found: list[int] = []
    for child in children(pid):
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        found += [child] if state == "Z" else zombies(child)
    return found


@contextmanager
def adopting() -> Iterator[Callable[[], list[int]]]:
    """Inside the block, call what it gives for the orphans so far. Those are ended and buried at its end."""
    before = set(children(os.getpid()))
    _become(subreaper=True)

    def orphans() -> list[int]:
        return [pid for pid in children(os.getpid()) if pid not in before]

    try:
        yield orphans
    finally:
        _become(subreaper=False)
        for pid in orphans():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _become(*, subreaper: bool) -> None:
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(subreaper), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
