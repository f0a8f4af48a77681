"""Jobs that a process of its own imports and runs. Each writes into the file it is given."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from delayq import Job, job


@job("aside.tell")
def tell(path: str) -> None:
    """Which process it is."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")


@job("aside.waits")
def waits(path: str, gate: str) -> None:
    """Ends when somebody has opened the gate, which is a pipe."""
    Path(gate).read_bytes()
    Path(path).write_text("through", encoding="utf-8")


@job("aside.fails")
def fails(order: int) -> None:
    """Never works."""
    raise ValueError(f"no order {order}")


@job("aside.dies")
def dies() -> None:
    """Takes its process along."""
    os.kill(os.getpid(), signal.SIGKILL)


class Told(Job, name="aside.told"):
    """A class of jobs."""

    path: str

    def handle(self) -> None:
        tell(self.path)
