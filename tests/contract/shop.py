"""The jobs that real workers run in the contract suite. Each writes a line into the file it is given."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from delayq import job


def say(path: str, line: str) -> int:
    """Append a line; how many there are by then."""
    with Path(path).open("a+", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        file.seek(0)
        return len(file.readlines())


@job("contract.note")
def note(path: str, text: str) -> None:
    """Write it down."""
    say(path, text)


@job("contract.fails", tries=2, backoff="0s")
def fails(path: str) -> None:
    """Never works."""
    say(path, "tried")
    raise ValueError("never works")


@job("contract.kills")
def kills(path: str) -> None:
    """Takes its process along, the first time."""
    if say(path, "started") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    say(path, "done")
