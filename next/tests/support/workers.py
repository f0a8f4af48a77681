"""Ends workers that tests started."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """List the process ids of the children of a process; none when it has ended."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def end_worker(worker: "subprocess.Popen[bytes]") -> None:
    """Kill a worker and its children, so that none of them writes to the server of the next test."""
    children = children_of(worker.pid)
    worker.kill()
    worker.wait()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
